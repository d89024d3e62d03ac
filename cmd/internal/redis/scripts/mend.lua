-- Deletes the keys that do not have the type that the proxy gives them: nothing that such a key
-- holds is the proxy's, and each command that needs it would fail.
--
-- KEYS     any keys of the proxy
-- ARGV     the type of each
--
-- Returns the deleted keys.
local deleted = {}
for i, key in ipairs(KEYS) do
	local is = redis.call('TYPE', key).ok
	if is ~= 'none' and is ~= ARGV[i] then
		redis.call('UNLINK', key)
		deleted[#deleted + 1] = key
	end
end
return deleted
