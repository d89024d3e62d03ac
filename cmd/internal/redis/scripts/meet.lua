-- Gives the store's epoch, and makes one where the store is empty. It writes in any
-- case: a server that takes nothing is of no use.
--
-- KEYS[1]  the epoch
-- KEYS[2]  sorted set: the replicas, see beat.lua
-- ARGV[1]  what the epoch is to be where there is none
--
-- Returns {EPOCH, SHARED}. SHARED is 1 where some replica shares the store, or did just
-- now: whatever others had to tell it when it was empty is told.
local epoch = redis.call('GET', KEYS[1]) or ARGV[1]
redis.call('SET', KEYS[1], epoch)
return {epoch, redis.call('EXISTS', KEYS[2])}
