-- Counts requests of a client against its quota of a day.
--
-- KEYS[1]  the uses of the day: a hash with the fields r:CLIENT and b:CLIENT
-- ARGV[1]  the client
-- ARGV[2]  requests that were sent and not counted yet (negative: given back), and
-- ARGV[3]  bytes that were received and not counted yet
-- ARGV[4]  the requests to count now, if the quota is not reached
-- ARGV[5]  the quota in requests, and
-- ARGV[6]  in bytes; 0: none
-- ARGV[7]  how long the uses are kept, in milliseconds
--
-- Returns {TAKEN, REQUESTS, BYTES}: whether the requests were counted, and what the client has used.
local requests = redis.call('HINCRBY', KEYS[1], 'r:' .. ARGV[1], ARGV[2])
local bytes = redis.call('HINCRBY', KEYS[1], 'b:' .. ARGV[1], ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[7])
local most, mostBytes = tonumber(ARGV[5]), tonumber(ARGV[6])
if most > 0 and requests >= most or mostBytes > 0 and bytes >= mostBytes then
	return {0, requests, bytes}
end
return {1, redis.call('HINCRBY', KEYS[1], 'r:' .. ARGV[1], ARGV[4]), bytes}
