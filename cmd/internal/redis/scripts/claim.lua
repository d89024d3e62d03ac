-- Takes the lease to fetch a robots.txt, unless another replica has it.
--
-- KEYS[1]  the lease; its value is its name
-- KEYS[2]  the frame of the robots.txt, see frame in outbox.go
-- ARGV[1]  the name of the new lease
-- ARGV[2]  how long it lasts, in milliseconds
-- ARGV[3]  length of a frame's mark in bytes
--
-- Returns {TAKEN, MARK}. TAKEN is 1 if the lease was free. A lease without an end, of which
-- somebody has removed the expiry, is free: whoever had it may be long gone.
local mark = redis.call('GETRANGE', KEYS[2], 0, ARGV[3] - 1)
if redis.call('PTTL', KEYS[1]) >= 0 then
	return {0, mark}
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {1, mark}
