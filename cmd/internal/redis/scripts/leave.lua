-- Records that a replica has ended in order: the others leave its share to its successor,
-- unless that is there already.
--
-- KEYS[1]  sorted set: the replicas, see beat.lua
-- KEYS[2]  sorted set: the shares of replicas that ended in order
-- ARGV[1]  its name
-- ARGV[2]  for how long the share is kept, in milliseconds
-- ARGV[3]  how many shares there are
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then
	return 0
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local int = function(n) return string.format('%.0f', n) end

local taken = redis.call('ZCOUNT', KEYS[1], int(now), '+inf') + redis.call('ZCOUNT', KEYS[2], int(now), '+inf')
if taken >= tonumber(ARGV[3]) then
	return 0
end
redis.call('ZADD', KEYS[2], int(now + ARGV[2]), ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 1
