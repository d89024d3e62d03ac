-- Gives back the right to fetch.
--
-- KEYS[1]  who has it
-- ARGV[1]  who gives it back
if redis.call('GET', KEYS[1]) == ARGV[1] then
	redis.call('DEL', KEYS[1])
end
return 1
