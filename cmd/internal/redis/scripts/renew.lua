-- Renews leases of concurrency slots, and creates those that have expired: the replica
-- that holds one has a request under way.
--
-- KEYS     sorted sets: the leases of a key, one set for each lease
-- ARGV[1]  how long the leases last, in microseconds
-- ARGV[2]… the names of the leases
local time = redis.call('TIME')
local ends = string.format('%.0f', time[1] * 1000000 + time[2] + ARGV[1])
local ttl = string.format('%.0f', ARGV[1] / 1000 + 1000)
for i, key in ipairs(KEYS) do
	redis.call('ZADD', key, ends, ARGV[i + 1])
	redis.call('PEXPIRE', key, ttl)
end
return 1
