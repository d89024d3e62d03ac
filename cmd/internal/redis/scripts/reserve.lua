-- Gives the next turn of one key, or says why there is none. All times are the
-- server's, in microseconds; what comes in and goes out are lengths of time.
--
-- KEYS[1]  hash: the key's clocks
--            c:NAME  a clock that many share:
--                    "TOKENS STAMP EACH BURST END SLOWEST WRITTEN"
-- KEYS[2]  sorted set: the leases of its places, by when they end
-- KEYS[3]  the store's epoch
-- KEYS[4]  hash: the pause, KEYS[1] itself or that of one of several hosts which share it
--            p       "END LENGTH WRITTEN"
-- KEYS[5]  string, where there is a second clock: a client's own, likewise
-- ARGV[1]  the epoch that the asker knows
-- ARGV[2]  the name of the lease, which may be there already, and in
-- ARGV[3]  how long it lasts
-- ARGV[4]  how many places there are
-- ARGV[5]  the longest wait that is wanted
-- ARGV[6]  for how long the turn is to be good
-- ARGV[7]  what is left of the pause that the asker knows (less than 0: since when it
--          is over; empty: it knows none), and in
-- ARGV[8]  its length
-- ARGV[9]… of each clock: name, time in which it earns a token, burst, gap (0: none),
--          how long ago the asker last sent by it (-1: never), and, where a turn was
--          not used and is to be taken back first, what the clock was before that
--          turn, and after (empty: none is)
--
-- Returns {CODE, WAIT, LEFT, LENGTH, BEFORE, AFTER…}. CODE 1: a turn, after WAIT; 0: none,
-- and WAIT until it is worth asking again; -1: none for want of a place; -2: it is
-- another epoch, and nothing else is returned. LEFT (nil: none) and LENGTH are the
-- pause's. BEFORE and AFTER tell each clock as it was and is, for a turn not used.
--
-- A clock held TOKENS at STAMP, which may lie ahead, and earns one every EACH up to
-- BURST. END is that of its last turn, from which the gap counts, and SLOWEST the
-- longest gap it was ever asked to keep. EACH is 0 where no terms were ever in force. What was WRITTEN later than now is of a time
-- when the server's clock was ahead: all its times are put back by as much.

if redis.call('GET', KEYS[3]) ~= ARGV[1] then
	return {-2}
end

local FORGIVEN = 1800000000 -- so long after its end a pause is of no more use
local SAME = 50000          -- two ends of a pause closer than this are one that has travelled
local TRIFLE = 5000         -- for so long the first clock may stand idle for the second
local SLACK = 1000000       -- for so long a key is kept beyond its use

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local int = function(n) return string.format('%.0f', n) end

local clocks = {}
for i = 9, #ARGV, 7 do
	clocks[#clocks + 1] = {
		name = 'c:' .. ARGV[i], each = tonumber(ARGV[i + 1]), burst = tonumber(ARGV[i + 2]),
		gap = tonumber(ARGV[i + 3]), ago = tonumber(ARGV[i + 4]), before = ARGV[i + 5], after = ARGV[i + 6],
	}
end
local apart = KEYS[4] ~= KEYS[1]
clocks[1].was = redis.call('HGET', KEYS[1], clocks[1].name) or ''
if clocks[2] then
	clocks[2].was = redis.call('GET', KEYS[5]) or ''
end

local paused, length, written = string.match(redis.call('HGET', KEYS[4], 'p') or '', '^(%S+) (%S+) (%S+)$')
if paused then
	paused, length = paused - math.max(0, written - now), tonumber(length)
end
if not paused or paused + FORGIVEN <= now then
	paused, length = nil, 0
end
local left = tonumber(ARGV[7])
if left then
	if not paused or now + left > paused + SAME then
		paused = now + left
	end
	length = math.max(length, tonumber(ARGV[8]))
end

-- holds is what a clock's bucket holds at a time, or at its stamp where that is later.
local function holds(c, at)
	return math.min(c.most, c.tokens + math.max(0, at - c.stamp) / c.earns)
end

-- due puts the asker's terms in force and gives when the next turn may begin.
local function due(c, start)
	if c.after ~= '' and c.was == c.after then
		c.was, c.is = c.before, c.before
	end
	local tokens, stamp, each, burst, ends, slowest, written =
		string.match(c.was, '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
	if tokens then
		local back = math.max(0, written - now)
		c.tokens, c.stamp, c.earns, c.most = tonumber(tokens), stamp - back, tonumber(each), tonumber(burst)
		if c.earns == 0 then
			c.earns, c.most = c.each, c.burst
		end
		c.ends, c.slowest = ends - back, tonumber(slowest)
		c.tokens, c.stamp = holds(c, now), math.max(c.stamp, now)
	elseif c.ago >= 0 then
		c.tokens, c.stamp, c.ends, c.slowest = 0, now - c.ago, now - c.ago, 0
	else
		c.tokens, c.stamp, c.ends, c.slowest = c.burst, now, -1, 0
	end
	if c.ago >= 0 then
		c.ends = math.max(c.ends, now - c.ago)
	end
	c.earns, c.most = c.each, c.burst
	c.tokens = math.min(c.tokens, c.burst)
	local at = math.max(start, c.stamp)
	if c.gap > 0 and c.ends >= 0 then
		at = math.max(at, c.ends + c.gap)
	end
	return at + math.max(0, math.ceil((1 - holds(c, at)) * c.each))
end

local start = math.max(now, paused or now)
local first = due(clocks[1], start)
local at = first
if clocks[2] then
	at = math.max(at, due(clocks[2], start))
end

local reply = {1, at - now, paused and paused - now or false, length}

local lasts = tonumber(ARGV[3])
if apart and paused and paused > now then
	reply[1], reply[2] = 0, paused - now -- a turn after it would hold up the others
elseif at - now > tonumber(ARGV[5]) then
	reply[1] = 0
elseif at - first > TRIFLE then
	reply[1], reply[2] = 0, at - first
else
	if redis.call('ZCOUNT', KEYS[2], int(now), '+inf') >= tonumber(ARGV[4])
		and tonumber(redis.call('ZSCORE', KEYS[2], ARGV[2]) or -1) < now then
		-- A lease that ends later than any can is of a time when the clock was ahead.
		local most = int(now + lasts)
		for _, lease in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. most, '+inf')) do
			redis.call('ZADD', KEYS[2], most, lease)
		end
		reply[1], reply[2] = -1, 0
	else
		-- First what a server whose memory is full refuses: after another write it would not.
		redis.call('ZADD', KEYS[2], int(now + lasts), ARGV[2])
		redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', '(' .. int(now))
		redis.call('PEXPIRE', KEYS[2], int(lasts / 1000 + 1000))
	end
end

local booked = reply[1] == 1
local ends = at + tonumber(ARGV[6])
local over = now
for _, c in ipairs(clocks) do
	if booked then
		c.tokens, c.stamp, c.ends = holds(c, ends) - 1, ends, ends
		c.slowest = math.max(c.slowest, c.gap)
		c.is = string.format('%.17g %.0f %.17g %.0f %.0f %.0f %.0f',
			c.tokens, c.stamp, c.each, c.burst, c.ends, c.slowest, now)
		reply[#reply + 1], reply[#reply + 2] = c.was, c.is
	end
	over = math.max(over, c.ends + c.slowest, c.stamp + (c.burst - c.tokens) * c.each)
end

-- keep sets a field of a hash, which is kept until then at least.
local function keep(key, field, value, over)
	redis.call('HSET', key, field, value)
	redis.call('PEXPIRE', key, int(math.max((over - now + SLACK) / 1000, redis.call('PTTL', key))))
end

if clocks[1].is then -- a turn was booked, or one that was not used is taken back
	keep(KEYS[1], clocks[1].name, clocks[1].is, over)
end
if clocks[2] and clocks[2].is then
	redis.call('SET', KEYS[5], clocks[2].is, 'PX', int((over - now + SLACK) / 1000))
end
if paused and (booked or left) then
	keep(KEYS[4], 'p', string.format('%.0f %.0f %.0f', paused, length, now), math.max(over, paused + FORGIVEN))
end
return reply
