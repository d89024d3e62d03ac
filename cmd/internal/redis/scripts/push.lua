-- Tells of what one replica has sent without a turn, and of pauses. What is known
-- already is not made any shorter by it.
--
-- KEYS[1]  the store's epoch
-- KEYS[2]… hashes: the pause and clocks of each key, see reserve.lua
-- ARGV[1]  the epoch that the replica knows; empty: any
-- ARGV[2]… of each key: what is left of its pause (less than 0: since when it is over;
--          empty: there is none), the pause's length, for how long the clocks may hold
--          up others, how long ago the host's clock sent (-1: not), and its assets'
--
-- All in microseconds. Returns 1, or -2 where it is another epoch.

if ARGV[1] ~= '' and redis.call('GET', KEYS[1]) ~= ARGV[1] then
	return -2
end

local FORGIVEN = 1800000000 -- these are reserve.lua's
local SLACK = 1000000

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local int = function(n) return string.format('%.0f', n) end

-- pause gives the pause that is known already merged with the one told of, nil where
-- it is over, and its end.
local function pause(was, left, length)
	local paused, before, written = string.match(was or '', '^(%S+) (%S+) (%S+)$')
	paused = paused and paused - math.max(0, written - now)
	if not paused or paused + FORGIVEN <= now then
		paused, before = now + left, 0
	end
	paused, length = math.max(paused, now + left), math.max(before, length)
	if paused + FORGIVEN > now then
		return string.format('%.0f %.0f %.0f', paused, length, now), paused
	end
end

-- spend gives the clock that is known already, spent by what was sent, and until when
-- it may hold up somebody.
local function spend(was, sent, reach)
	local tokens, stamp, each, burst, ends, slowest, written =
		string.match(was or '', '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
	if not tokens then
		tokens, stamp, each, burst, ends, slowest, written = 0, sent, 0, 0, sent, reach, now
	end
	local back = math.max(0, written - now)
	stamp, ends = math.max(stamp - back, sent), math.max(ends - back, sent)
	slowest = math.max(slowest, reach)
	return string.format('%.17g %.0f %.17g %.0f %.0f %.0f %.0f',
		math.min(tokens, 0), stamp, each, burst, ends, slowest, now), math.max(ends + slowest, stamp + burst * each)
end

for k = 2, #KEYS do
	local a = 2 + (k - 2) * 5
	local kept = redis.call('HMGET', KEYS[k], 'p', 'c:', 'c:assets')
	local set, over = {}, now

	if ARGV[a] ~= '' then
		local is, ends = pause(kept[1], tonumber(ARGV[a]), tonumber(ARGV[a + 1]))
		if is then
			set[1], set[2] = 'p', is
			over = ends + FORGIVEN
		end
	end
	for i, field in ipairs({'c:', 'c:assets'}) do
		local ago = tonumber(ARGV[a + 2 + i])
		if ago >= 0 then
			local is, ends = spend(kept[1 + i], now - ago, tonumber(ARGV[a + 2]))
			set[#set + 1], set[#set + 2] = field, is
			over = math.max(over, ends)
		end
	end
	if #set > 0 then
		redis.call('HSET', KEYS[k], unpack(set))
		redis.call('PEXPIRE', KEYS[k], int(math.max((over - now + SLACK) / 1000, redis.call('PTTL', KEYS[k]))))
	end
end
return 1
