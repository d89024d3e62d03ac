-- Counts requests in meters: of the quotas of clients, and of the budgets of hosts. All times are the server's, in
-- milliseconds since 1970.
--
-- KEYS     the meters. A meter is a hash: a field is the end of a bucket, and its value "REQUESTS BYTES"
-- ARGV[1]  the requests to count now in each meter, if none has reached its limit; 0: none
-- ARGV[2]  how many buckets of a meter are kept
-- ARGV[3]… for each meter: how long a bucket lasts; how long it counts after its end; the limit in requests, and in bytes
--          (0: none); what was used and not counted yet: "END:REQUESTS:BYTES" of some buckets, between commas
--          (negative: given back)
--
-- Returns {TAKEN, NOW, BUCKETS…}: whether no limit was reached, the time, and what counts in each meter, in the form in which it
-- is told.

local MOST = 9007199254740992 -- the greatest number that is exact

local requests, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local int = function(n) return string.format('%.0f', n) end

-- number gives the number that a text is, or nil if the proxy would not write it.
local function number(text)
	local n = text and #text <= 16 and tonumber(text)
	return n and n <= MOST and n or nil
end

-- read gives the meter of a key as it is, with what is told. It writes nothing: a key of another type ends the script.
local function read(key, first)
	local width, span = tonumber(ARGV[first]), tonumber(ARGV[first + 1])
	local m = {stored = {}, used = {}, ends = {}, present = (math.floor(now / width) + 1) * width}
	m.over = m.present + span

	-- A bucket that ends after the present one was begun by a clock that was ahead, or when buckets lasted longer.
	local function add(at, r, b)
		at = math.min(at, m.present)
		if at + span > now then
			local u = m.used[at]
			if not u then
				u = {0, 0}
				m.used[at] = u
			end
			u[1], u[2] = u[1] + r, u[2] + b
		end
	end
	local stored = redis.call('HGETALL', key)
	for i = 1, #stored, 2 do
		m.stored[stored[i]] = stored[i + 1]
		local at = number(string.match(stored[i], '^%d+$'))
		local r, b = string.match(stored[i + 1], '^(%d+) (%d+)$')
		r, b = number(r), number(b)
		if at and r and b then
			add(at, r, b)
		end
	end
	for at, r, b in string.gmatch(ARGV[first + 4], '(%d+):(-?%d+):(-?%d+)') do
		add(tonumber(at), tonumber(r), tonumber(b))
	end

	local all = {0, 0}
	for at, u in pairs(m.used) do
		u[1], u[2] = math.min(MOST, math.max(0, u[1])), math.min(MOST, math.max(0, u[2]))
		all[1], all[2] = all[1] + u[1], all[2] + u[2]
		if u[1] + u[2] > 0 then
			m.ends[#m.ends + 1] = at
		else
			m.used[at] = nil
		end
	end
	local limit, limit_bytes = tonumber(ARGV[first + 2]), tonumber(ARGV[first + 3])
	m.full = limit > 0 and all[1] >= limit or limit_bytes > 0 and all[2] >= limit_bytes
	return m
end

local meters, taken = {}, 1
for i, key in ipairs(KEYS) do
	meters[i] = read(key, 5 * i - 2)
	if meters[i].full then
		taken = 0
	end
end

local reply = {taken, now}
for i, key in ipairs(KEYS) do
	local m = meters[i]
	if taken * requests > 0 then
		if not m.used[m.present] then
			m.used[m.present] = {0, 0}
			m.ends[#m.ends + 1] = m.present
		end
		m.used[m.present][1] = m.used[m.present][1] + requests
	end
	table.sort(m.ends)
	local first = math.max(1, #m.ends - most + 1)
	for n = 1, first - 1 do
		local oldest, kept = m.used[m.ends[n]], m.used[m.ends[first]]
		kept[1], kept[2] = kept[1] + oldest[1], kept[2] + oldest[2]
	end
	local told = {}
	for n = first, #m.ends do
		local field, u = int(m.ends[n]), m.used[m.ends[n]]
		local value = int(u[1]) .. ' ' .. int(u[2])
		if m.stored[field] ~= value then
			redis.call('HSET', key, field, value)
			redis.call('PEXPIRE', key, int(m.over - now))
		end
		m.stored[field] = nil
		told[#told + 1] = field .. ':' .. int(u[1]) .. ':' .. int(u[2])
	end
	for field in pairs(m.stored) do
		redis.call('HDEL', key, field)
	end
	reply[#reply + 1] = table.concat(told, ',')
end
return reply
