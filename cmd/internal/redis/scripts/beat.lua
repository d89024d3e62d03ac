-- Records that a replica is there, and counts all replicas.
--
-- KEYS[1]  the store's epoch
-- KEYS[2]  sorted set: the replicas, by when they count as gone
-- KEYS[3]  sorted set: the shares of replicas that ended in order, by when they expire
-- ARGV[1]  the epoch that the replica knows
-- ARGV[2]  its name
-- ARGV[3]  for how long it counts as there, in milliseconds
-- ARGV[4]  how long a share is kept at the most, in milliseconds
-- ARGV[5]  1: the replica was never there, and takes over a share
--
-- Returns {REPLICAS, SHARES}, or {-2} if the epoch is another one.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
	return {-2}
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local int = function(n) return string.format('%.0f', n) end

-- This write comes first: a server whose memory is full refuses it, and would not refuse
-- it after another write.
redis.call('ZADD', KEYS[2], int(now + ARGV[3]), ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[3])

-- What expires later than it can dates from a time when the server's clock was ahead.
for i = 2, 3 do
	local most = int(now + ARGV[i + 1])
	redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', int(now))
	for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[i], '(' .. most, '+inf')) do
		redis.call('ZADD', KEYS[i], most, name)
	end
end
if ARGV[5] == '1' then
	redis.call('ZPOPMIN', KEYS[3])
end
return {redis.call('ZCARD', KEYS[2]), redis.call('ZCARD', KEYS[3])}
