-- Tells the store of requests that one replica has sent without a slot, and of back-offs.
-- Nothing that the store knows already becomes shorter by it.
--
-- KEYS[1]  the store's epoch
-- KEYS[2]… hashes: the back-off and the limiters of each key, see reserve.lua
-- ARGV[1]  the epoch that the replica knows; empty: any
-- ARGV[2]… for each key: what is left of its back-off (negative: since when it is over;
--          empty: there is none), the back-off's length, for how long the limiters may
--          hold up other requests, how long ago the host's limiter sent a request (-1: it
--          did not), and how long ago the limiter of its assets did
--
-- All in microseconds. Returns 1, or -2 if the epoch is another one.

if ARGV[1] ~= '' and redis.call('GET', KEYS[1]) ~= ARGV[1] then
	return -2
end

-- These are constants of reserve.lua.
local FORGIVEN = 1800000000
local ENDED = 250000
local ENDED_FOR = 30
local SLACK = 1000000

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local int = function(n) return string.format('%.0f', n) end

-- back_off merges the back-off that is known already with the one that is reported. It
-- gives nil if that is of no more use, else what to store, and its end.
local function back_off(was, left, length)
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

-- spend mirrors limiter.Spend line by line, see reserve.lua. It gives what to store, and
-- until when the limiter may hold up a request.
local function spend(was, sent, reach)
	local tokens, stamp, each, burst, last, longest, written =
		string.match(was or '', '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
	if not tokens then
		tokens, stamp, each, burst, last, longest, written = 0, 0, 0, 0, 0, 0, now
	end
	local back = math.max(0, written - now)
	tokens, stamp = math.min(tokens, 0), math.max(stamp - back, sent)
	last = math.max(last - back, sent)
	longest, each, burst = math.max(longest, reach), tonumber(each), tonumber(burst)
	return string.format('%.17g %.0f %.17g %.0f %.0f %.0f %.0f', tokens, stamp, each, burst, last, longest, now),
		math.max(last + longest, stamp + (burst - tokens) * each)
end

for k = 2, #KEYS do
	local a = 2 + (k - 2) * 5
	local kept = redis.call('HMGET', KEYS[k], 'p', 'c:', 'c:assets', 'e')
	local set, over = {}, now

	local left = tonumber(ARGV[a])
	local ended, when = string.match(kept[4] or '', '^(%S+) (%S+)$')
	if left and not (ended and time[1] - when < ENDED_FOR and math.abs(now + left - ended) < ENDED) then
		local is, ends = back_off(kept[1], left, tonumber(ARGV[a + 1]))
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
