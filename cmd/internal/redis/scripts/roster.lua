-- Records what a replica tells of itself, and gives it the lowest number, from 1, that no
-- other replica has. The replica keeps it unless there are fewer replicas than that.
--
-- KEYS[1]  the store's epoch
-- KEYS[2]  sorted set: the replicas, see beat.lua
-- KEYS[3]  hash: what each replica tells of itself, by its name
-- KEYS[4]  hash: the number of each replica, by its name
-- KEYS[5]  string: the guard that all replicas use, in milliseconds
-- ARGV[1]  the epoch that the replica knows
-- ARGV[2]  its name
-- ARGV[3]  what it tells of itself
-- ARGV[4]  for how long that is kept, in milliseconds
-- ARGV[5]  how many names are wanted at the most
-- ARGV[6]  the number that it had, which it keeps if it can (0: none)
-- ARGV[7]  how many replicas there may be
-- ARGV[8]  the guard that it finds necessary, in milliseconds
--
-- Returns {NUMBER, GUARD, NAME…}: the replica's number, the greatest guard that a replica
-- has found necessary lately, and the names of replicas that are there. It returns {-2} if
-- the epoch is another one.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
	return {-2}
end
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))

-- This write comes first: a server whose memory is full refuses it, and would not refuse
-- it after another write.
redis.call('HSET', KEYS[3], ARGV[2], ARGV[3])

local there, count, names = {}, 0, {}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. now, '+inf')) do
	there[name], count = true, count + 1
	if #names < tonumber(ARGV[5]) then
		names[#names + 1] = name
	end
end
local taken, number = {}, tonumber(ARGV[6])
local numbers = redis.call('HGETALL', KEYS[4])
for i = 1, #numbers, 2 do
	local name = numbers[i]
	if there[name] and name ~= ARGV[2] then
		taken[tonumber(numbers[i + 1]) or 0] = true
	elseif name ~= ARGV[2] then
		redis.call('HDEL', KEYS[3], name)
		redis.call('HDEL', KEYS[4], name)
	end
end
if number < 1 or number > math.max(count, tonumber(ARGV[7])) or taken[number] then
	number = 1
	while taken[number] do
		number = number + 1
	end
end
redis.call('HSET', KEYS[4], ARGV[2], number)
redis.call('PEXPIRE', KEYS[3], ARGV[4])
redis.call('PEXPIRE', KEYS[4], ARGV[4])

local guard = tonumber(redis.call('GET', KEYS[5]) or 0) or 0
if tonumber(ARGV[8]) >= guard then
	guard = tonumber(ARGV[8])
	redis.call('SET', KEYS[5], guard, 'PX', ARGV[4])
end
return {number, guard, unpack(names)}
