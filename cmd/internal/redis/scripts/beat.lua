-- Says that a replica is there, and counts all that are.
--
-- KEYS[1]  the store's epoch
-- KEYS[2]  sorted set: the replicas, by when they count as gone
-- KEYS[3]  sorted set: the shares of those that ended in order, by when they end
-- ARGV[1]  the epoch that the replica knows
-- ARGV[2]  its name
-- ARGV[3]  for how long it counts as there, and
-- ARGV[4]  how long a share may be left behind at the most, in milliseconds
-- ARGV[5]  1: it has never been there, and takes over a share that was left behind
--
-- Returns {THERE, LEFT}, or {-2} where the epoch is another one.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
	return {-2}
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local int = function(n) return string.format('%.0f', n) end

-- First what a server whose memory is full refuses: after another write it would not.
redis.call('ZADD', KEYS[2], int(now + ARGV[3]), ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[3])

-- What ends later than it can is of a time when the server's clock was ahead.
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
