-- Gives back a slot that was not used, for each limiter that has no later one.
--
-- KEYS[1]  hash: the limiters of the key, see reserve.lua
-- KEYS[2]  string, if there is a second limiter: that limiter
-- ARGV[1]  the name of the first limiter
-- ARGV[2]… for each limiter: what it was before the slot (empty: nothing), and after it
local field = 'c:' .. ARGV[1]
if redis.call('HGET', KEYS[1], field) == ARGV[3] then
	redis.call('HSET', KEYS[1], field, ARGV[2])
end
if KEYS[2] and redis.call('GET', KEYS[2]) == ARGV[5] then
	redis.call('SET', KEYS[2], ARGV[4], 'PX', math.max(1, redis.call('PTTL', KEYS[2])))
end
return 1
