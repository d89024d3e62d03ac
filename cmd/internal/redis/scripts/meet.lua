-- Returns the store's epoch, and makes one if the store is empty. It writes in any case: a
-- server that refuses writes is of no use.
--
-- KEYS[1]  the epoch
-- KEYS[2]  sorted set: the replicas, see beat.lua
-- ARGV[1]  the new epoch if there is none
--
-- Returns {EPOCH, SHARED}. SHARED is 1 if some replica shares the store, or did just now:
-- then all replicas have pushed what an empty store lacked.
local epoch = redis.call('GET', KEYS[1]) or ARGV[1]
redis.call('SET', KEYS[1], epoch)
return {epoch, redis.call('EXISTS', KEYS[2])}
