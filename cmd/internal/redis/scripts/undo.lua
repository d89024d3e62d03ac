-- Takes back a turn that was not used, by each clock by which nobody has a later one.
--
-- KEYS[1]  hash: the key's clocks, see reserve.lua
-- KEYS[2]  string, where there is a second clock: that
-- ARGV[1]  the first clock's name, and in
-- ARGV[2]… of each clock: what it was before the turn (empty: nothing), and after
local field = 'c:' .. ARGV[1]
if redis.call('HGET', KEYS[1], field) == ARGV[3] then
	redis.call('HSET', KEYS[1], field, ARGV[2])
end
if KEYS[2] and redis.call('GET', KEYS[2]) == ARGV[5] then
	redis.call('SET', KEYS[2], ARGV[4], 'PX', math.max(1, redis.call('PTTL', KEYS[2])))
end
return 1
