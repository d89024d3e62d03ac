-- Releases the lease to fetch an origin's robots.txt.
--
-- KEYS[1]  the lease; its value is its name
-- ARGV[1]  the name of the lease that is released
if redis.call('GET', KEYS[1]) == ARGV[1] then
	redis.call('DEL', KEYS[1])
end
return 1
