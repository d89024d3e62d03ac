-- Saves what is known of an origin's robots.txt.
--
-- KEYS[1]  what is known, see frame in robots.go
-- ARGV[1]  what is to be known
-- ARGV[2]  for how long, in milliseconds
-- ARGV[3]  octets of a purge
-- ARGV[4]  octets of its mark
-- ARGV[5]  the mark of the purge that the replica knows of; empty: of none
--
-- Returns 0 where there is a purge that it does not know of: what it saves may rest on
-- what was known before.
if redis.call('STRLEN', KEYS[1]) == tonumber(ARGV[3]) and redis.call('GETRANGE', KEYS[1], 0, ARGV[4] - 1) ~= ARGV[5] then
	return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
