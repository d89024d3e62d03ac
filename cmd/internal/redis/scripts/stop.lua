-- Takes over a change of a stop, unless the store has a later one: it knows in which order the changes of all replicas were made.
--
-- KEYS[1]  the stops: a hash with CHANGED SENDER TEXT for each of their keys
-- KEYS[2]  the keys, sorted by the number of the last change
-- KEYS[3]  the keys of those stops that are of no more use at a time, sorted by it in milliseconds
-- ARGV[1]  how many stops there may be
-- ARGV[2]  the key, and
-- ARGV[3]  the text, of the stop
-- ARGV[4]  how long ago it was changed in microseconds
-- ARGV[5]  for how long it is of use in milliseconds; -1: for ever
-- ARGV[6]  the replica, whose changes come in their order, however long they were under way
--
-- CHANGED is the store's time in microseconds. Numbers of changes are about such times, so that they grow although one of the keys is
-- lost. Beyond the maximum, the stop that is of use for the shortest time makes room. Pauses are of use longer than cool-downs.
--
-- Returns 1 if the stop has changed, else 0.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local key, text, changed, kept, sender = ARGV[2], ARGV[3], now - ARGV[4], tonumber(ARGV[5]), ARGV[6]
local LATE = 10000000 -- how late a change may arrive that is made now
local int = function(n) return string.format('%.0f', n) end

local drop = function(k)
	redis.call('HDEL', KEYS[1], k)
	redis.call('ZREM', KEYS[2], k)
	redis.call('ZREM', KEYS[3], k)
end

local was = redis.call('HGET', KEYS[1], key)
local before, by, same = string.match(was or '', '^(%d+) (%S+) (.*)$')
before = tonumber(before) or 0
-- If the clock was set back, what is known seems to come later than all that happens.
if before > now then
	before = now - LATE
end
if before > changed then
	if by ~= sender then
		return 0
	end
	changed = before + 1
end
if same ~= text then
	for _, old in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', int(now / 1000), 'LIMIT', 0, 100)) do
		drop(old)
	end
	if not was and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[1]) then
		local old = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
		if not old then
			return 0
		end
		drop(old)
	end
	local last = redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2] or 0
	redis.call('ZADD', KEYS[2], int(math.max(last + 1, now)), key)
	if kept < 0 then
		redis.call('ZREM', KEYS[3], key)
	else
		redis.call('ZADD', KEYS[3], int(now / 1000 + kept), key)
	end
end
redis.call('HSET', KEYS[1], key, int(changed) .. ' ' .. sender .. ' ' .. text)
return same == text and 0 or 1
