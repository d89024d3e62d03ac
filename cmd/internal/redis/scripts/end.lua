-- Ends the back-off of a host. Its end is remembered for a time, because a call that was
-- made before may still report it.
--
-- KEYS[1]  hash: the back-off, see reserve.lua
local written = redis.call('HGET', KEYS[1], 'p')
if written then
	-- The other way round, the hash and its expiry might end in between.
	redis.call('HSET', KEYS[1], 'e', string.match(written, '^%S+') .. ' ' .. redis.call('TIME')[1])
	redis.call('HDEL', KEYS[1], 'p', 'b')
end
return 1
