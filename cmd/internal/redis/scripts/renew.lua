-- Renews leases of places, and gives those again that are no more: who holds one has a
-- request under way.
--
-- KEYS     sorted sets: the leases of the places of a key, one for each of
-- ARGV[2]… the leases, and in
-- ARGV[1]  how long they last, in microseconds
local time = redis.call('TIME')
local ends = string.format('%.0f', time[1] * 1000000 + time[2] + ARGV[1])
local ttl = string.format('%.0f', ARGV[1] / 1000 + 1000)
for i, key in ipairs(KEYS) do
	redis.call('ZADD', key, ends, ARGV[i + 1])
	redis.call('PEXPIRE', key, ttl)
end
return 1
