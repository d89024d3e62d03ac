-- Saves the frame of an origin's robots.txt.
--
-- KEYS[1]  the frame, see frame in outbox.go
-- ARGV[1]  the new frame
-- ARGV[2]  for how long, in milliseconds
-- ARGV[3]  length of a purge in bytes
-- ARGV[4]  length of its mark in bytes
-- ARGV[5]  the mark of the last purge that the replica knows of; empty: none
--
-- Returns 0 if the key holds a purge that the replica does not know of: its frame may rest on
-- what was purged.
if redis.call('STRLEN', KEYS[1]) == tonumber(ARGV[3]) and redis.call('GETRANGE', KEYS[1], 0, ARGV[4] - 1) ~= ARGV[5] then
	return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
