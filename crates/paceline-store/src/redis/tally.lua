-- Adds to the books of one scope on one day.
--
--   KEYS[1]  the hash of the scope and the day
--   ARGV[1]  { instant in us or 0 for the server's, when the day begins in us, how long the hash is kept from
--            then on in s, { name of a sum, what is added }... }
--   gives    the instant in us; where that is on another day, nothing was added

local DAY, MOST = 86400000000, 9007199254740991

local batch = cmsgpack.unpack(ARGV[1])
local now, begins = batch[1], batch[2]
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
if now < begins or now >= begins + DAY then
  return now
end
-- What is no tally of ours is begun anew.
if redis.call('TYPE', KEYS[1]).ok ~= 'hash' then
  redis.call('DEL', KEYS[1])
end
for _, sum in ipairs(batch[4]) do
  local more = string.format('%.0f', sum[2])
  local all = redis.pcall('HINCRBY', KEYS[1], sum[1], more)
  if type(all) == 'table' then
    redis.call('HSET', KEYS[1], sum[1], more)
  elseif all > MOST then
    redis.call('HSET', KEYS[1], sum[1], string.format('%.0f', MOST))
  end
end
redis.call('EXPIRE', KEYS[1], math.ceil(batch[3] - (now - begins) / 1000000))
return now
