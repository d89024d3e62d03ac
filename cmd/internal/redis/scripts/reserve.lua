-- Reserves the next slot of one key, or says why there is none. All times are the
-- server's, in microseconds; arguments and replies are durations.
--
-- KEYS[1]  hash: the limiters of the key
--            c:NAME  a limiter that many requests share:
--                    "TOKENS STAMP EACH BURST LAST LONGEST WRITTEN"
-- KEYS[2]  sorted set: the leases of the key's concurrency slots, by their end
-- KEYS[3]  the store's epoch
-- KEYS[4]  hash: the back-off; KEYS[1] itself, or the hash of one of several hosts that
--          share KEYS[1]
--            p       "END LENGTH WRITTEN"
--            b       the request that caused the back-off
--            e       "END SECONDS": when the back-off would have ended that an operator has
--                    ended, and when that was, in seconds
-- KEYS[5]  string, if there is a second limiter: the limiter of one client, likewise
-- ARGV[1]  the epoch that the caller knows
-- ARGV[2]  the name of the lease, which may exist already
-- ARGV[3]  how long the lease lasts
-- ARGV[4]  the concurrency limit
-- ARGV[5]  the longest wait that the caller accepts
-- ARGV[6]  for how long the slot may be used
-- ARGV[7]  what is left of the back-off that the caller knows (negative: since when it is
--          over; empty: the caller knows none)
-- ARGV[8]  the length of that back-off
-- ARGV[9]… for each limiter: name, time in which it earns a token, burst, gap (0: none),
--          how long ago the caller last sent a request by it (-1: never), and, if a slot
--          was not used and is to be given back first, the limiter before that slot and
--          after it (empty: none is)
--
-- Returns {CODE, WAIT, LEFT, LENGTH, BY, BEFORE, AFTER…}. CODE 1: a slot, after WAIT; 0: no
-- slot, and WAIT until it is worth asking again; -1: no slot, since the concurrency limit
-- is reached; -2: the epoch is another one, and nothing else is returned. LEFT (nil: none),
-- LENGTH and BY (nil: not known) describe the back-off. BEFORE and AFTER give each limiter as it was and is,
-- for a slot that is not used.
--
-- What was WRITTEN later than now dates from a time when the server's clock was ahead: all
-- its times are put back by as much.

if redis.call('GET', KEYS[3]) ~= ARGV[1] then
	return {-2}
end

local FORGIVEN = 1800000000 -- the time after its end from which a back-off is of no use
local SAME = 50000          -- two ends closer than this are one back-off that was reported twice
local ENDED = 250000        -- two ends closer than this are the back-off that an operator has ended,
local ENDED_FOR = 30        -- unless that was so many seconds ago
local TRIFLE = 5000         -- how long the first limiter may be idle because of the second
local SLACK = 1000000       -- how long a key is kept after its use

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local int = function(n) return string.format('%.0f', n) end

-- The functions tokens_at, apply, due, take and idle_at mirror package policy/pace/limiter
-- line by line, for n = 1: whoever changes one of them changes the other. A limiter's
-- state has the fields tokens, stamp, last and longest, and each, burst and gap of its
-- limit. 0 stands for Go's zero value.

-- tokens_at mirrors limiter.State.TokensAt.
local function tokens_at(s, at)
	return math.min(s.burst, s.tokens + math.max(0, at - s.stamp) / s.each)
end

-- apply mirrors limiter.Apply.
local function apply(s, l, sent)
	if s.each == 0 then
		if s.stamp ~= 0 then
		elseif sent == 0 then
			s.tokens, s.stamp = l.burst, now
		else
			s.tokens, s.stamp = 0, sent
		end
		s.each, s.burst = l.each, l.burst
	end
	s.tokens, s.stamp = tokens_at(s, now), math.max(s.stamp, now)
	s.each, s.burst, s.gap = l.each, l.burst, l.gap
	s.last = math.max(s.last, sent)
	s.longest = math.max(s.longest, l.gap)
end

-- due mirrors limiter.State.Due.
local function due(s, start)
	start = math.max(start, s.stamp)
	local at = start
	local short = 1 - tokens_at(s, start)
	if short > 0 then
		at = start + math.ceil(short * s.each)
	end
	if s.gap > 0 then
		if s.last ~= 0 then
			start = math.max(start, s.last + s.gap)
		end
		at = math.max(at, start)
	end
	return at
end

-- take mirrors limiter.Take.
local function take(s, at)
	s.tokens, s.stamp = tokens_at(s, at) - 1, at
	if s.gap > 0 and s.last ~= 0 then
		at = math.max(at, s.last + s.gap)
	end
	s.last = at
end

-- idle_at mirrors limiter.State.IdleAt.
local function idle_at(s)
	local at = 0
	if s.last ~= 0 then
		at = s.last + s.longest
	end
	local short = s.burst - s.tokens
	if short > 0 then
		at = math.max(at, s.stamp + math.ceil(short * s.each))
	end
	return at
end

-- read gives the state that a string describes. The gap is not part of it.
local function read(text)
	local tokens, stamp, each, burst, last, longest, written =
		string.match(text, '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
	if not tokens then
		return {tokens = 0, stamp = 0, each = 0, burst = 0, last = 0, longest = 0}
	end
	local back = math.max(0, written - now)
	return {
		tokens = tonumber(tokens), stamp = stamp - back, each = tonumber(each), burst = tonumber(burst),
		last = last - back, longest = tonumber(longest),
	}
end

local function write(s)
	return string.format('%.17g %.0f %.17g %.0f %.0f %.0f %.0f', s.tokens, s.stamp, s.each, s.burst, s.last, s.longest, now)
end

local kept = redis.call('HMGET', KEYS[4], 'p', 'b', 'e')
local paused, length, written = string.match(kept[1] or '', '^(%S+) (%S+) (%S+)$')
if paused then
	paused, length = paused - math.max(0, written - now), tonumber(length)
end
if not paused or paused + FORGIVEN <= now then
	paused, length = nil, 0
end
local left = tonumber(ARGV[7])
local ended, when = string.match(kept[3] or '', '^(%S+) (%S+)$')
if left and ended and time[1] - when < ENDED_FOR and math.abs(now + left - ended) < ENDED then
	left = nil
end
if left then
	if not paused or now + left > paused + SAME then
		paused = now + left
	end
	length = math.max(length, tonumber(ARGV[8]))
end

local limiters = {}
local start = math.max(now, paused or now)
for i = 9, #ARGV, 7 do
	local name, before, after = 'c:' .. ARGV[i], ARGV[i + 5], ARGV[i + 6]
	local l = {name = name}
	if i == 9 then
		l.was = redis.call('HGET', KEYS[1], name) or ''
	else
		l.was = redis.call('GET', KEYS[5]) or ''
	end
	if after ~= '' and l.was == after then
		l.was, l.is = before, before
	end
	local ago = tonumber(ARGV[i + 4])
	l.state = read(l.was)
	apply(l.state, {each = tonumber(ARGV[i + 1]), burst = tonumber(ARGV[i + 2]), gap = tonumber(ARGV[i + 3])}, ago >= 0 and now - ago or 0)
	l.due = due(l.state, start)
	limiters[#limiters + 1] = l
end
local first = limiters[1].due
local at = first
if limiters[2] then
	at = math.max(at, limiters[2].due)
end

local reply = {1, at - now, paused and paused - now or false, length, kept[2]}

local lasts = tonumber(ARGV[3])
if KEYS[4] ~= KEYS[1] and paused and paused > now then
	-- A slot after the back-off would delay the other hosts.
	reply[1], reply[2] = 0, paused - now
elseif at - now > tonumber(ARGV[5]) then
	reply[1] = 0
elseif at - first > TRIFLE then
	reply[1], reply[2] = 0, at - first
else
	if redis.call('ZCOUNT', KEYS[2], int(now), '+inf') >= tonumber(ARGV[4])
		and tonumber(redis.call('ZSCORE', KEYS[2], ARGV[2]) or -1) < now then
		-- A lease that ends later than any can dates from a time when the clock was ahead.
		local most = int(now + lasts)
		for _, lease in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. most, '+inf')) do
			redis.call('ZADD', KEYS[2], most, lease)
		end
		reply[1], reply[2] = -1, 0
	else
		-- This write comes first: a server whose memory is full refuses it, and would not
		-- refuse it after another write.
		redis.call('ZADD', KEYS[2], int(now + lasts), ARGV[2])
		redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', '(' .. int(now))
		redis.call('PEXPIRE', KEYS[2], int(lasts / 1000 + 1000))
	end
end

local reserved = reply[1] == 1
local ends = at + tonumber(ARGV[6])
local over = now
for _, l in ipairs(limiters) do
	if reserved then
		take(l.state, ends)
		l.is = write(l.state)
		reply[#reply + 1], reply[#reply + 2] = l.was, l.is
	end
	over = math.max(over, idle_at(l.state))
end

-- keep sets a field of a hash, and keeps the hash until a time at least.
local function keep(key, field, value, over)
	redis.call('HSET', key, field, value)
	redis.call('PEXPIRE', key, int(math.max((over - now + SLACK) / 1000, redis.call('PTTL', key))))
end

-- A limiter has changed if a slot was reserved, or an unused one was given back.
if limiters[1].is then
	keep(KEYS[1], limiters[1].name, limiters[1].is, over)
end
if limiters[2] and limiters[2].is then
	redis.call('SET', KEYS[5], limiters[2].is, 'PX', int((over - now + SLACK) / 1000))
end
if paused and (reserved or left) then
	keep(KEYS[4], 'p', string.format('%.0f %.0f %.0f', paused, length, now), math.max(over, paused + FORGIVEN))
end
return reply
