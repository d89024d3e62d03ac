-- Records what a replica tells of itself, and gives it the lowest number, from 1, that
-- no other replica has. The replica keeps it.
--
-- KEYS[1]  the store's epoch
-- KEYS[2]  sorted set: the replicas, see beat.lua
-- KEYS[3]  hash: what each replica tells of itself, by its name
-- KEYS[4]  hash: the number of each replica, by its name
-- ARGV[1]  the epoch that the replica knows
-- ARGV[2]  its name
-- ARGV[3]  what it tells of itself
-- ARGV[4]  for how long that is kept, in milliseconds
-- ARGV[5]  how many names are wanted at the most
-- ARGV[6]  the number that it had, which it keeps if it can (0: none)
--
-- Returns {TIME, NUMBER, NAME…}: the server's clock in microseconds, the replica's number,
-- and the names of replicas that are there. It returns {-2} if the epoch is another one.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
	return {-2}
end
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local int = function(n) return string.format('%.0f', n) end

local there, names = {}, {}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. int(micros / 1000), '+inf')) do
	there[name] = true
	if #names < tonumber(ARGV[5]) then
		names[#names + 1] = name
	end
end
local taken, number = {}, tonumber(ARGV[6])
local numbers = redis.call('HGETALL', KEYS[4])
for i = 1, #numbers, 2 do
	local name = numbers[i]
	if there[name] and name ~= ARGV[2] then
		taken[tonumber(numbers[i + 1])] = true
	elseif name ~= ARGV[2] then
		redis.call('HDEL', KEYS[3], name)
		redis.call('HDEL', KEYS[4], name)
	end
end
if number < 1 or taken[number] then
	number = 1
	while taken[number] do
		number = number + 1
	end
end
redis.call('HSET', KEYS[3], ARGV[2], ARGV[3])
redis.call('HSET', KEYS[4], ARGV[2], number)
redis.call('PEXPIRE', KEYS[3], ARGV[4])
redis.call('PEXPIRE', KEYS[4], ARGV[4])
return {micros, number, unpack(names)}
