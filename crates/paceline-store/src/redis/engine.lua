-- The engine of paceline inside Redis: an imitation of `ScopeState` in paceline-core, decision by
-- decision, and nothing else. Whatever is decided there is decided here; the conformance suite holds
-- the two together.
--
-- One call does a batch of operations on the scopes of one host, all of them or none, at one instant.
-- States are `Record`s of paceline-core. While they are worked on, every instant in them counts from
-- now, so now is 0 and no number outgrows the 53 bits that a double keeps exactly.
--
--   KEYS     the keys of the scopes, each once
--   ARGV[1]  the batch: { instant in us or 0 for the server's, longest hold in ns, learn first,
--            { what a scope looks like that is not stored: { key, whether it was declared, limits, what
--            was seen of it before the server lost it }... },
--            { operations: { name, ... }... } }
--   gives    { instant in us, the answers, the number of a key, its state, ... }

local VERSION = 1
local NEVER, FAR = -9007199254740992, -4503599627370496
local CENTURY = 2305843009213693952
local TALLY = 9007199254740992
local UNIT = 1000000
local SECOND = 1000000000
-- As in state.rs and learn.rs.
local PATIENCE, REMEMBERED, KEPT = 30 * SECOND, 600 * SECOND, 10
local SOON, NO_ANSWER = 5 * SECOND, 150 * SECOND
local FLOOR, BLUR, ROUNDED, SLIGHT = SECOND / 10, 1.5 * SECOND, SECOND, SECOND / 100
local OFTEN = SECOND / 4
local MOST_LEARNED, FARTHEST, MOST = 8, 86400 * SECOND, 1000000000000
local LONGEST = 3650 * 86400 * SECOND
-- As in search.rs, where a search is { peak, passed, since, refused, streak }.
local PEAK, PASSED, SINCE_PASSED, REFUSED, STREAK = 1, 2, 3, 4, 5
local MOST_RATE, BACK, STEEPEST, OVER = 10000000, 80, 5, 8
-- Limits that somebody set are kept for a month of idleness, and for twelve of their windows.
local CONFIGURED, WINDOWS = 30 * 86400 * SECOND, 12

-- Fields of a record.
local VER, AT, HOLD, STRIKES, PHASE, SINCE, UNTIL, ANSWERED = 1, 2, 3, 4, 5, 6, 7, 8
local YOUNG, OLD, BEGAN, BEFORE, OVER, LANES, QUICKEST = 9, 10, 11, 12, 13, 14, 15
-- Fields of a limit.
local DIMENSION, UNITS, WINDOW, BURST, ORIGIN, ONE, DEPTH, FINENESS = 1, 2, 3, 4, 5, 6, 7, 8
local KIND, LEVEL, ENTRIES, RESET, START, LAST, NAME = 9, 10, 11, 12, 13, 14, 15
local SPREAD, DUE, QUIET, SEARCH = 16, 17, 18, 19
local OWN, DOUBT, TOLD, HEARD, AIM, PASSED_BEFORE, COUNTED = 20, 21, 22, 23, 24, 25, 26
-- As in fixed.rs.
local AGAIN, SOONEST, DEAR = 40, 6, 32
local OPEN, FIRST, ASKING = 0, 1, 2
local BUCKET, STRICT, FIXED, UNSTATED = 0, 1, 2, 3
local REGISTRY, DEFAULT, ESTIMATED, CONFIRMED, BY_HAND = 0, 1, 2, 3, 4
-- Fields of a signal, see `SignalRecord`: the limit it states, what is left and the reset (-1 when unknown),
-- the window it states and the one it implies (0 when unknown), whether the server's is a bucket, what it
-- says of the limit whether or not that makes sense, and the limit to begin with when none is known.
local S_DIMENSION, S_TOLD, S_LEFT, S_RESET, S_WINDOW, S_IMPLIED, S_BUCKET = 1, 2, 3, 4, 5, 6, 7
local S_LIMIT, S_NEW, S_NAME = 8, 9, 10
-- Causes of a wait that are no limit.
local BY_HOLD, BY_FIRST = -1, -2

local max, min, floor, ceil, fmod = math.max, math.min, math.floor, math.ceil, math.fmod

local batch = cmsgpack.unpack(ARGV[1])
local now, max_hold, learn_first = batch[1], batch[2], batch[3]
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * UNIT + time[2]
end

-- Arithmetic ---------------------------------------------------------------------------------------

local function div(a, b)
  local rest = fmod(a, b)
  return (a - rest) / b, rest
end

-- a * b / c and what is left, without ever forming a * b.
local function muldiv(a, b, c)
  local quotient, rest = 0, 0
  for digit in string.gmatch(string.format('%.0f', b), '%d') do
    local q1, r1 = div(rest * 10, c)
    local q2, r2 = div(a * digit, c)
    quotient, rest = quotient * 10 + q1 + q2, r1 + r2
    if rest >= c then
      quotient, rest = quotient + 1, rest - c
    end
  end
  return quotient, rest
end

local function muldiv_up(a, b, c)
  local quotient, rest = muldiv(a, b, c)
  if rest > 0 then quotient = quotient + 1 end
  return quotient
end

local function of(amounts, dimension)
  for i = 1, #amounts do
    if amounts[i][1] == dimension then return amounts[i][2] end
  end
  return 0
end

local function set(amounts, dimension, amount)
  for i = 1, #amounts do
    if amounts[i][1] == dimension then
      amounts[i][2] = amount
      return
    end
  end
  amounts[#amounts + 1] = { dimension, amount }
end

local function add(amounts, cost)
  for i = 1, #cost do
    set(amounts, cost[i][1], fmod(of(amounts, cost[i][1]) + cost[i][2], TALLY))
  end
end

local function remove(amounts, cost)
  for i = 1, #cost do
    local rest = of(amounts, cost[i][1]) - cost[i][2]
    if #amounts > 0 then set(amounts, cost[i][1], max(rest, 0)) end
  end
end

local function since(tally, before)
  local far = tally - before
  if far < 0 then far = far + TALLY end
  if far > TALLY / 2 then return 0 end
  return far
end

local function any(amounts)
  for i = 1, #amounts do
    if amounts[i][2] > 0 then return true end
  end
  return false
end

-- One limit (gcra.rs, strict.rs, fixed.rs, lane.rs) ------------------------------------------------

-- Compiles a rate: the ticks of a unit and of the bucket.
local function compile(lane)
  local fineness = 1
  local function unit() return muldiv_up(lane[WINDOW], fineness, lane[UNITS]) end
  while fineness < 256 and unit() < 10000 do fineness = fineness * 2 end
  lane[FINENESS], lane[ONE] = fineness, min(unit(), CENTURY)
  lane[DEPTH] = min(lane[ONE] * lane[BURST], CENTURY)
end

local function ticks(lane, amount)
  if amount == UNIT then return lane[ONE] end
  local whole, part = div(amount, UNIT)
  local sum = whole * lane[ONE]
  if part > 0 then
    local high, low = div(lane[ONE], UNIT)
    sum = sum + part * high + ceil(part * low / UNIT)
  end
  return min(sum, CENTURY)
end

-- When the present window ends, as far as is known, and what was spent in it: nothing past its end.
local function window_of(lane)
  local ends = lane[RESET]
  if ends == NEVER and lane[START] ~= NEVER then ends = lane[START] + lane[WINDOW] end
  if ends ~= NEVER and ends <= 0 then return NEVER, 0 end
  return ends, lane[LEVEL]
end

-- Whether a window that is over is followed by one that is spread, but not after a pause, and the windows
-- since a rejection then.
local function following(lane)
  local limit, ended = lane[UNITS] * UNIT, lane[RESET]
  if ended == NEVER then ended = lane[START] + lane[WINDOW] end
  local quiet = lane[QUIET]
  local refused = lane[KIND] == UNSTATED and quiet > 0 and lane[COUNTED] == NEVER
  local used = max(limit - lane[LEVEL], 0) <= floor(limit / 8)
  return (used or refused) and -ended < lane[WINDOW], quiet > 0 and min(quiet + 1, 255) or 0
end

-- Whether the present window is over.
local function is_over(lane)
  return (lane[RESET] ~= NEVER or lane[START] ~= NEVER) and window_of(lane) == NEVER
end

-- Forgets what is known of one window.
local function open(lane)
  lane[RESET], lane[START], lane[DUE] = NEVER, NEVER, NEVER
  lane[OWN], lane[DOUBT], lane[TOLD], lane[HEARD], lane[AIM] = 0, -1, NEVER, NEVER, NEVER
end

-- Begins a window that is over anew. The end of the next one is the server's to tell.
local function roll(lane)
  if not is_over(lane) then return end
  lane[SPREAD], lane[QUIET] = following(lane)
  if lane[RESET] ~= NEVER then lane[LAST] = lane[RESET] end
  if not lane[SPREAD] then lane[COUNTED] = NEVER end
  lane[PASSED_BEFORE] = lane[COUNTED] ~= NEVER and lane[PASSED_BEFORE] + lane[LEVEL] or 0
  lane[LEVEL] = 0
  open(lane)
end

-- Whether nobody knows what passes in the present window, so that it is tried one at a time.
local function is_unknown(lane, spread, quiet)
  return lane[KIND] == UNSTATED and quiet == 0 and not spread
end

-- The limit, and what is tried beyond it where nobody stated one.
local function tried(lane, quiet)
  local limit = lane[UNITS] * UNIT
  if lane[KIND] ~= UNSTATED or (quiet > 0 and quiet <= AGAIN) then return limit end
  return limit + max(quiet == 0 and limit or floor(limit / 16), UNIT)
end

-- What is left of the present window after an instant.
local function rest_of(lane, due)
  local ends = lane[AIM] ~= NEVER and lane[AIM] or window_of(lane)
  return ends ~= NEVER and max(ends - due, 0) or 0
end

-- How long strangers take for an amount, if they go on as they did until that was last told.
local function theirs(lane, amount)
  local strange = max(lane[LEVEL] - lane[OWN], 0)
  if lane[RESET] == NEVER or lane[TOLD] == NEVER or strange == 0 then return nil end
  local rest = max(lane[RESET] - lane[TOLD], 0)
  local elapsed = max(lane[WINDOW] - rest, floor(lane[WINDOW] / 4))
  return (muldiv(elapsed, amount, strange))
end

-- When an amount fits beside what strangers spend until the end.
local function clear(lane, amount, limit)
  local span = theirs(lane, max(max(limit - lane[LEVEL], 0) - amount, 0))
  if not span then return NEVER end
  local when = max(lane[RESET] - span, 0, lane[DUE])
  return when > lane[TOLD] + span and lane[RESET] or when
end

-- What is left for this side, beside what strangers spend from an instant until the end.
local function ours(lane, limit, at)
  local left, one = max(limit - lane[LEVEL], 0), theirs(lane, UNIT)
  if not one then return left end
  return max(left - muldiv(rest_of(lane, at), UNIT, max(one, 1)), 0)
end

-- Nanoseconds until an amount can be paid.
local function wait_lane(lane, amount)
  local kind = lane[KIND]
  if kind == BUCKET then
    local advance = ticks(lane, amount)
    local wait = lane[LEVEL] - max(lane[DEPTH] - advance, 0)
    if wait <= 0 then return 0 end
    return ceil(wait / lane[FINENESS])
  end
  local limit = lane[UNITS] * UNIT
  if kind == STRICT then
    local room, spent, due = max(limit - amount, 0), lane[LEVEL], 0
    local last = lane[ENTRIES][#lane[ENTRIES]]
    if last and lane[ORIGIN] ~= BY_HAND then
      due = max(last[1] + muldiv(lane[WINDOW], floor(last[3] * 15 / 16), limit), 0)
    end
    for _, entry in ipairs(lane[ENTRIES]) do
      local frees = entry[2]
      if spent <= room and frees > 0 then return due end
      local without = max(spent - entry[3], 0)
      if frees > 0 and without <= room then return max(frees, due) end
      spent = without
    end
    return due
  end
  local ends, spent = window_of(lane)
  local over, spread, quiet = is_over(lane), lane[SPREAD], lane[QUIET]
  if over then spread, quiet = following(lane) end
  if is_unknown(lane, spread, quiet) then return 0 end
  limit = tried(lane, quiet)
  if spent > 0 and spent + amount > limit then return max(ends, 0) end
  return over and 0 or max(lane[DUE], clear(lane, amount, limit), 0)
end

-- How long what was spent counts: where that was only seen, a little longer than the window.
local function lasting_of(lane)
  return lane[ORIGIN] == BY_HAND and lane[WINDOW] or lane[WINDOW] + floor(lane[WINDOW] / 256)
end

local function spend_lane(lane, amount)
  local kind = lane[KIND]
  if kind == BUCKET then
    lane[LEVEL] = min(lane[LEVEL] + ticks(lane, amount), CENTURY)
  elseif kind == STRICT then
    local entries, limit, window = lane[ENTRIES], lane[UNITS] * UNIT, lane[WINDOW]
    local lasting = lasting_of(lane)
    while entries[1] and entries[1][2] <= 0 do
      lane[LEVEL] = max(lane[LEVEL] - entries[1][3], 0)
      table.remove(entries, 1)
    end
    local frees = lasting + 1
    if amount > limit then frees = frees + muldiv_up(amount - limit, lasting, limit) end
    lane[LEVEL] = lane[LEVEL] + amount
    local last = entries[#entries]
    if last and last[1] + floor(lasting / 128) > 0 then
      last[3], last[2] = last[3] + amount, max(last[2], frees)
    else
      if last then frees = max(frees, last[2]) end
      entries[#entries + 1] = { 0, frees, amount }
    end
  else
    roll(lane)
    if lane[START] == NEVER then lane[START] = 0 end
    if lane[KIND] == UNSTATED and lane[COUNTED] == NEVER then lane[COUNTED] = 0 end
    if lane[SPREAD] then
      local due = lane[DUE] ~= NEVER and lane[DUE] or 0
      local left = max(ours(lane, tried(lane, lane[QUIET]), due), UNIT)
      local step = muldiv(rest_of(lane, due), min(amount, left), left)
      lane[DUE] = due + (lane[RESET] ~= NEVER and step or min(step, SECOND))
    end
    lane[LEVEL], lane[OWN] = lane[LEVEL] + amount, lane[OWN] + amount
  end
end

local function refund(lane, amount, at)
  local kind = lane[KIND]
  if kind == BUCKET then
    lane[LEVEL] = max(lane[LEVEL] - ticks(lane, amount), 0)
  elseif kind == STRICT then
    local entry
    for _, candidate in ipairs(lane[ENTRIES]) do
      if candidate[1] <= at then entry = candidate end
    end
    if entry then
      local back = min(amount, entry[3])
      entry[3], lane[LEVEL] = entry[3] - back, max(lane[LEVEL] - back, 0)
    end
  else
    roll(lane)
    local began = lane[RESET] ~= NEVER and lane[RESET] - lane[WINDOW] or NEVER
    if lane[START] ~= NEVER then began = min(began, lane[START]) end
    if at >= began then
      if lane[DUE] ~= NEVER then
        local limit = tried(lane, lane[QUIET])
        local span, left = rest_of(lane, lane[DUE]), ours(lane, limit, lane[DUE])
        if left == 0 then span, left = lane[WINDOW], limit end
        lane[DUE] = lane[DUE] - muldiv(span, amount, left)
      end
      lane[LEVEL], lane[OWN] = max(lane[LEVEL] - amount, 0), max(lane[OWN] - amount, 0)
    end
  end
end

local function spent_strict(lane)
  local spent = 0
  for _, entry in ipairs(lane[ENTRIES]) do
    if entry[2] > 0 then spent = spent + entry[3] end
  end
  return spent
end

local function remaining(lane)
  local kind = lane[KIND]
  if kind == BUCKET then
    return (muldiv(max(lane[DEPTH] - lane[LEVEL], 0), UNIT, lane[ONE]))
  elseif kind == STRICT then
    return max(lane[UNITS] * UNIT - spent_strict(lane), 0)
  end
  local _, spent = window_of(lane)
  return max(lane[UNITS] * UNIT - spent, 0)
end

-- The time until it is full; for a server's window, until its reset.
local function until_full(lane)
  local kind = lane[KIND]
  if kind == BUCKET then return ceil(lane[LEVEL] / lane[FINENESS]) end
  if kind >= FIXED then return max(lane[RESET], 0) end
  local last = lane[ENTRIES][#lane[ENTRIES]]
  return last and max(last[2], 0) or 0
end

local function set_remaining(lane, left)
  if lane[KIND] == BUCKET then lane[LEVEL] = max(lane[DEPTH] - ticks(lane, left), 0) end
end

local function unstated(state)
  for _, lane in ipairs(state[LANES]) do
    if lane[KIND] == UNSTATED then return lane end
  end
end

-- Puts another limit in place and keeps the units that were used.
local function relimit(lane, limit)
  if lane[UNITS] == limit[UNITS] and lane[WINDOW] == limit[WINDOW] and lane[BURST] == limit[BURST]
    and lane[ORIGIN] == limit[ORIGIN] and (lane[NAME] or '') == (limit[NAME] or '')
    and (lane[KIND] == STRICT) == (limit[KIND] == STRICT) then
    return
  end
  if limit[ORIGIN] == BY_HAND then lane[SEARCH] = false end
  local stays = lane[KIND] >= FIXED and limit[KIND] ~= STRICT and limit[ORIGIN] ~= BY_HAND
  -- What was spent frees as much later as the window is longer.
  local stretched = lane[KIND] == STRICT and limit[KIND] == STRICT and lasting_of(lane)
  stays = stays or stretched
  local used
  if not stays then
    if lane[KIND] == BUCKET then
      used = muldiv_up(lane[LEVEL], UNIT, lane[ONE])
    else
      used = max(lane[UNITS] * UNIT - remaining(lane), 0)
    end
    local debt = max(used - lane[BURST] * UNIT, 0)
    used = min(used - debt, limit[BURST] * UNIT) + debt
  end
  for _, field in ipairs({ UNITS, WINDOW, BURST, ORIGIN, NAME }) do lane[field] = limit[field] end
  compile(lane)
  if stretched then
    local longer = lasting_of(lane) - stretched
    for _, entry in ipairs(lane[ENTRIES]) do entry[2] = entry[2] + longer end
  elseif not stays then
    lane[KIND] = limit[KIND] == STRICT and STRICT or BUCKET
    lane[LEVEL], lane[ENTRIES], lane[LAST], lane[SPREAD], lane[QUIET] = 0, {}, NEVER, false, 0
    open(lane)
    if used > 0 then spend_lane(lane, used) end
  end
end

-- One scope (state.rs, flight.rs) ------------------------------------------------------------------

local states, touched = {}, {}

local function fresh(lanes, first)
  return { VERSION, now, 0, 0, first and FIRST or OPEN, 0, 0, FAR, {}, {}, FAR, FAR, {}, lanes, 0 }
end

-- Lets the time pass since it was written.
local function age(state)
  local elapsed = max(now - state[AT], 0) * 1000
  local function past(container, field) container[field] = max(container[field] - elapsed, FAR) end
  for _, field in ipairs({ SINCE, UNTIL, ANSWERED, BEGAN, BEFORE }) do past(state, field) end
  state[HOLD] = max(state[HOLD] - elapsed, 0)
  state[QUICKEST] = state[QUICKEST] or 0
  for _, lane in ipairs(state[LANES]) do
    if lane[KIND] == BUCKET then
      lane[LEVEL] = max(lane[LEVEL] - elapsed * lane[FINENESS], 0)
    end
    for _, entry in ipairs(lane[ENTRIES]) do
      past(entry, 1)
      past(entry, 2)
    end
    -- What the first release did not know.
    lane[NAME], lane[SPREAD] = lane[NAME] or '', lane[SPREAD] or false
    lane[DUE], lane[QUIET], lane[SEARCH] = lane[DUE] or NEVER, lane[QUIET] or 0, lane[SEARCH] or false
    if (lane[OWN] or -1) < 0 then lane[OWN] = lane[LEVEL] end
    lane[DOUBT], lane[PASSED_BEFORE] = lane[DOUBT] or -1, lane[PASSED_BEFORE] or 0
    if lane[DUE] ~= NEVER then past(lane, DUE) end
    for _, field in ipairs({ TOLD, HEARD, AIM, COUNTED }) do
      lane[field] = lane[field] or NEVER
      if lane[field] ~= NEVER then past(lane, field) end
    end
    local search = lane[SEARCH]
    for field = SINCE_PASSED, search and REFUSED or 0 do
      if search[field] ~= NEVER then past(search, field) end
    end
    for field = RESET, LAST do
      if lane[field] ~= NEVER then past(lane, field) end
    end
  end
end

-- In parts, for there are only so many arguments to a call.
local stored = {}
for from = 1, #KEYS, 1000 do
  local part = redis.call('MGET', unpack(KEYS, from, min(from + 999, #KEYS)))
  for i = 1, #part do stored[from + i - 1] = part[i] end
end

local function load_all()
  for i = 1, #KEYS do
    states[i] = false
    if stored[i] then
      local readable, state = pcall(cmsgpack.unpack, stored[i])
      readable = readable and type(state) == 'table' and type(state[VER]) == 'number'
      if readable and state[VER] > VERSION then
        return redis.error_reply('PACELINE a state was written by a later release of paceline')
      end
      -- What is no state of ours is begun anew.
      if readable and pcall(age, state) then
        states[i] = state
        -- A clock that was set back goes on from here.
        if now < state[AT] then touched[i] = true end
      else
        stored[i] = false
      end
    end
  end
  for _, template in ipairs(batch[4]) do
    local i = template[1]
    if not states[i] and template[2] then
      states[i] = template[4] or fresh(template[3], false)
      -- What a process saw before the server lost it.
      if template[4] then
        age(template[4])
        touched[i] = true
      end
    end
  end
end

local function governs(state)
  return #state[LANES] > 0 or state[HOLD] > 0 or state[PHASE] ~= OPEN
end

-- The limits of a scope of which nothing is known, where the policy has any.
local function defaults(i)
  for _, template in ipairs(batch[4]) do
    if template[1] == i then return template[3] end
  end
end

local function unknown(i)
  local lanes = defaults(i) or {}
  return fresh(lanes, #lanes == 0 and learn_first)
end

local function exactly(i)
  if not states[i] then states[i] = unknown(i) end
  touched[i] = true
  return states[i]
end

-- The narrowest candidate that decides anything; the last one is the host, where defaults apply.
local function governing(candidates)
  for _, i in ipairs(candidates) do
    if states[i] and governs(states[i]) then return states[i], i end
  end
  local host = candidates[#candidates]
  if not learn_first and not defaults(host) then return nil, host end
  if not states[host] then states[host] = unknown(host) end
  return states[host], host
end

local function generation(state)
  local longest
  for _, lane in ipairs(state[LANES]) do longest = max(longest or 0, lane[WINDOW]) end
  return longest and min(max(floor(longest / 2), SOON), NO_ANSWER) or NO_ANSWER
end

local function turn(state)
  local span, old = generation(state), -state[BEGAN]
  if old >= span then
    state[OLD] = old >= span * 2 and {} or state[YOUNG]
    state[YOUNG], state[BEFORE], state[BEGAN] = {}, state[BEGAN], 0
  end
end

local function land_in_flight(state, cost, at)
  if at >= state[BEGAN] then
    remove(state[YOUNG], cost)
  elseif at >= state[BEFORE] then
    remove(state[OLD], cost)
  end
end

local function was_first(state, at)
  return state[PHASE] == ASKING and at >= state[SINCE]
end

local function wait(state, cost)
  local longest, by = state[HOLD], BY_HOLD
  for i, lane in ipairs(state[LANES]) do
    local amount = of(cost, lane[DIMENSION])
    if amount > 0 then
      local after = wait_lane(lane, amount)
      if after > longest then longest, by = after, i end
    end
  end
  return longest, by
end

local function spend(state, cost)
  for _, lane in ipairs(state[LANES]) do
    local amount = of(cost, lane[DIMENSION])
    if amount > 0 then spend_lane(lane, amount) end
  end
end

local function settle(state, cost, at, actual)
  for _, lane in ipairs(state[LANES]) do
    local charged, spent = of(cost, lane[DIMENSION]), of(actual, lane[DIMENSION])
    if spent < charged then
      refund(lane, charged - spent, at)
    elseif spent > charged then
      spend_lane(lane, spent - charged)
    end
  end
end

local function land(state, cost, at)
  land_in_flight(state, cost, at)
  add(state[OVER], cost)
  state[ANSWERED] = max(state[ANSWERED], at)
  local first = was_first(state, at)
  if first then state[PHASE] = OPEN end
  return first
end

-- Where nothing is known nothing is counted.
local function forget_nothing_known(state)
  if not governs(state) then
    for field, value in ipairs(fresh({}, false)) do
      if field ~= ANSWERED then state[field] = value end
    end
  end
end

-- How long it has to be kept if nobody comes any more.
local function kept(state)
  local function answered(span)
    return state[ANSWERED] > FAR and max(state[ANSWERED] + span, 0) or 0
  end
  local span = generation(state)
  local least = state[HOLD]
  if any(state[YOUNG]) then
    least = max(least, state[BEGAN] + span * 2)
  elseif any(state[OLD]) then
    least = max(least, state[BEGAN] + span)
  end
  if state[PHASE] == ASKING then least = max(least, state[UNTIL]) end
  if #state[LANES] == 0 then least = max(least, answered(REMEMBERED)) end
  for _, lane in ipairs(state[LANES]) do
    least = max(least, until_full(lane))
    if lane[ORIGIN] == BY_HAND then
      least = max(least, CONFIGURED, lane[WINDOW] * WINDOWS)
    elseif lane[ORIGIN] > DEFAULT then
      least = max(least, answered(max(REMEMBERED, lane[WINDOW] * KEPT)))
    end
  end
  return least
end

-- What a response teaches (learn.rs) ---------------------------------------------------------------

-- Made only where there is something to learn: a script pays for every function that it makes.
local function learning()
  local function snapped(window)
    local function near(span, share) return math.abs(window - span) <= floor(span / share) end
    for _, span in ipairs({ 1, 10, 60, 3600, 86400 }) do
      if near(span * SECOND, 4) then return span * SECOND end
    end
    local whole = floor((window + SECOND / 2) / SECOND) * SECOND
    if whole > 0 and near(whole, 20) then return whole end
    return window
  end

  -- The span that slides: its end is told as that of the newest request in it.
  local function span_of(signal)
    if signal[S_WINDOW] > 0 then return signal[S_WINDOW] end
    local told = signal[S_RESET]
    return told > 0 and told <= LONGEST and snapped(told) or nil
  end

  local function reconcile(predicted, told, uncertain, late)
    local lower = max(told - uncertain, 0)
    if lower <= predicted and predicted <= told then return predicted end
    if late then return min(lower, predicted) end
    return lower
  end

  local function limit_of(lane)
    local copy = {}
    for field = DIMENSION, NAME do copy[field] = lane[field] end
    return copy
  end

  local function correct(lane, signal, uncertain, late)
    if signal[S_LEFT] < 0 then return end
    local before = remaining(lane)
    local after = reconcile(before, signal[S_LEFT] * UNIT, uncertain, late)
    if floor(after / UNIT) ~= floor(before / UNIT) then set_remaining(lane, after) end
  end

  local function bounded(window, units) return min(window, FARTHEST * units) end

  local function teach_bucket(lane, signal, uncertain, late)
    local limit = limit_of(lane)
    if signal[S_TOLD] > 0 then limit[UNITS], limit[BURST] = signal[S_TOLD], signal[S_TOLD] end
    if signal[S_WINDOW] > 0 then
      limit[WINDOW], limit[ORIGIN] = signal[S_WINDOW], CONFIRMED
    elseif limit[ORIGIN] == ESTIMATED and signal[S_IMPLIED] > 0 then
      local said = max(signal[S_LIMIT], 0)
      if max(said - max(signal[S_LEFT], 0), 0) * 10 >= said then limit[WINDOW] = signal[S_IMPLIED] end
    end
    limit[WINDOW] = bounded(limit[WINDOW], limit[UNITS])
    relimit(lane, limit)
    correct(lane, signal, uncertain, late)
  end

  -- Turns a window of the server's into a limit that holds in any span; it was spent evenly since it began.
  local function slide(lane, left)
    local spent = max(lane[UNITS] * UNIT - left, 0)
    local part, step = floor(spent / 8), floor(min(-lane[START], lane[WINDOW]) / 8)
    compile(lane)
    lane[KIND], lane[LEVEL], lane[ENTRIES] = STRICT, spent, {}
    lane[LAST], lane[SPREAD], lane[QUIET] = NEVER, false, 0
    open(lane)
    for k = 0, 7 do
      local opened, amount = -step * (7 - k), k == 7 and spent - 7 * part or part
      lane[ENTRIES][k + 1] = { opened, opened + lasting_of(lane) + 1, amount }
    end
  end

  -- The same where its end has just moved on: whole seconds tell it one too late.
  local function told_span(signal, window)
    if signal[S_WINDOW] > 0 then return signal[S_WINDOW] end
    local millis = floor(signal[S_RESET] / (SECOND / 1000))
    local told = max(floor(max(millis - 500, 0) / 1000), 1) * SECOND
    return told <= LONGEST and told or window
  end

  -- Follows a limit that holds in any span of its window.
  local function teach_span(lane, signal, uncertain, late)
    local limit = limit_of(lane)
    if signal[S_TOLD] > 0 then limit[UNITS], limit[BURST] = signal[S_TOLD], signal[S_TOLD] end
    local span = span_of(signal)
    -- Rounding tells it up to a second too long; beyond that it was taken for too short.
    if signal[S_RESET] > limit[WINDOW] + ROUNDED + SLIGHT then
      limit[WINDOW] = told_span(signal, limit[WINDOW])
    elseif span and span < limit[WINDOW] then
      limit[WINDOW] = span
    end
    relimit(lane, limit)
    if signal[S_LEFT] < 0 then return end
    local before = remaining(lane)
    local after = reconcile(before, signal[S_LEFT] * UNIT, uncertain, late)
    if before > after + (floor(lane[UNITS] / 32) + 1) * UNIT then spend_lane(lane, before - after) end
  end

  local function teach_window(lane, signal, uncertain, alone, late, rejected)
    if lane[KIND] == STRICT then return teach_span(lane, signal, uncertain, late) end
    local fixed = lane[KIND] >= FIXED
    local reset = signal[S_RESET] >= 0 and min(signal[S_RESET], FARTHEST) or nil
    local known, last
    if fixed then
      if lane[RESET] > 0 then known = lane[RESET] end
      if lane[RESET] ~= NEVER and lane[RESET] <= 0 then
        last = lane[RESET]
      elseif lane[LAST] ~= NEVER then
        last = lane[LAST]
      end
    end
    local blur = min(BLUR, lane[WINDOW])
    local came_back = signal[S_LEFT] >= 0 and signal[S_LEFT] * UNIT > remaining(lane) + uncertain
    local next_window = reset and known
      and (reset > known + blur or (came_back and reset > known and not late))
    if reset and known and known > reset + blur and late then return end
    -- The end of a window stands still until it has come, and then all is there again.
    local is_early = known and known > floor(blur / 4)
    local function fell(share)
      return signal[S_LEFT] >= 0 and signal[S_LEFT] <= floor(lane[UNITS] / 4) * share
    end
    local moved = reset and known and reset > known + max(ROUNDED + SLIGHT, blur)
    -- Ends that are told in whole seconds move on by one at once, and not with the time that passes.
    local jumped = reset and known and fixed and lane[HEARD] ~= NEVER
      and reset > known + max(-lane[HEARD], 0) + ROUNDED / 2
    local moves = (moved and fell(2)) or (jumped and not came_back and fell(3))
    if moves and is_early and not late and not rejected then
      local predicted = lane[DOUBT] >= 0 and lane[DOUBT] or remaining(lane)
      lane[WINDOW] = told_span(signal, lane[WINDOW])
      slide(lane, min(signal[S_LEFT] * UNIT, predicted))
      return teach_span(lane, signal, uncertain, late)
    end
    local limit, supposed = limit_of(lane), lane[WINDOW]
    if signal[S_TOLD] > 0 then limit[UNITS], limit[BURST] = signal[S_TOLD], signal[S_TOLD] end
    local before = last
    if next_window then before = known end
    local distance
    if reset and before then
      local span = max(reset - before, 0)
      -- Across a pause it would be the pause that is measured.
      if max(-before, 0) <= floor(span / 2) then distance = span end
    end
    if signal[S_WINDOW] > 0 then
      limit[WINDOW], limit[ORIGIN] = signal[S_WINDOW], CONFIRMED
    elseif distance and distance > 0 and distance <= LONGEST then
      limit[WINDOW] = snapped(distance)
    elseif signal[S_IMPLIED] > limit[WINDOW] then
      limit[WINDOW] = signal[S_IMPLIED]
    end
    limit[WINDOW] = bounded(limit[WINDOW], limit[UNITS])
    -- Its length was stated, or seen before.
    local sure = limit[ORIGIN] == CONFIRMED or limit[WINDOW] == supposed
    relimit(lane, limit)
    local whole, predicted = lane[UNITS] * UNIT, remaining(lane)
    if lane[KIND] < FIXED then return end
    roll(lane)
    if next_window then lane[AIM], lane[DOUBT] = NEVER, -1 end
    local slight = min(SLIGHT, floor(lane[WINDOW] / 256))
    if reset and (next_window or not known or reset <= known + slight)
      and (lane[HEARD] == NEVER or -lane[HEARD] >= OFTEN) then
      lane[HEARD] = 0
    end
    if not next_window and reset and known and known <= reset + slight then reset = known end
    reset = reset or known
    local left = predicted
    if signal[S_LEFT] >= 0 then
      -- Where all that is left may be under way already, the answers to that are waited for.
      local told, least = signal[S_LEFT] * UNIT, nil
      if lane[DOUBT] >= 0 then least = min(lane[DOUBT], told) end
      lane[DOUBT] = -1
      left = reconcile(least or predicted, told, uncertain, late and not next_window)
      if told <= uncertain and not alone then
        lane[DOUBT], left = least or min(predicted, told), 0
      end
    end
    lane[LEVEL] = max(whole - left, 0)
    local untold = lane[RESET] == NEVER
    if untold and reset and not sure then lane[AIM] = reset - min(ROUNDED, floor(max(reset, 0) / 2)) end
    -- What was spent before anything was told was spent by nobody knows whom, nor when.
    if untold then lane[OWN] = max(lane[OWN], lane[LEVEL]) end
    if lane[LEVEL] > lane[OWN] then lane[TOLD] = 0 end
    lane[RESET] = reset or lane[RESET]
    if lane[START] == NEVER then lane[START] = 0 end
    if lane[DUE] ~= NEVER then
      local even = muldiv(rest_of(lane, 0), UNIT, ours(lane, whole, 0) + UNIT)
      lane[DUE] = untold and reset and even or min(lane[DUE], even)
    end
  end

  local function keep_lanes(state, keep)
    local lanes = {}
    for _, lane in ipairs(state[LANES]) do
      if keep(lane) then lanes[#lanes + 1] = lane end
    end
    state[LANES] = lanes
  end

  local function learn(state, cost, before, signal, late, rejected)
    if not signal[S_BUCKET] and signal[S_RESET] == 0 then return end
    local dimension, told = signal[S_DIMENSION], signal[S_TOLD]
    local others = since(of(state[OVER], dimension), of(before, dimension))
    local in_flight = of(state[YOUNG], dimension) + of(state[OLD], dimension)
    local uncertain = max(others - of(cost, dimension), 0) + in_flight
    local configured
    for _, lane in ipairs(state[LANES]) do
      if not configured and lane[DIMENSION] == dimension and lane[ORIGIN] == BY_HAND then
        configured = lane
      end
    end
    if configured then
      local units = configured[UNITS]
      if told > 0 and told < units then return end
      if signal[S_BUCKET] then
        if told == units then
          for _, lane in ipairs(state[LANES]) do
            if lane[DIMENSION] == dimension and lane[UNITS] == units then
              correct(lane, signal, uncertain, late)
            end
          end
        end
        return
      end
    end
    if told > 0 then
      keep_lanes(state, function(lane)
        return lane[DIMENSION] ~= dimension or (lane[ORIGIN] > DEFAULT and lane[KIND] ~= UNSTATED and not lane[SEARCH])
      end)
    end
    local learned, others_learned = nil, 0
    for _, lane in ipairs(state[LANES]) do
      if lane[ORIGIN] ~= BY_HAND then
        others_learned = others_learned + 1
        local named = (lane[NAME] or '') == signal[S_NAME]
        if not learned and named and lane[DIMENSION] == dimension then learned = lane end
      end
    end
    if not learned then
      if told <= 0 or others_learned >= MOST_LEARNED then return end
      learned = signal[S_NEW]
      state[LANES][#state[LANES] + 1] = learned
    end
    if signal[S_BUCKET] then
      teach_bucket(learned, signal, uncertain, late)
    else
      teach_window(learned, signal, uncertain, in_flight == 0, late, rejected)
    end
  end

  -- A server that states no limit tells one all the same: what passed before the rejection.
  local function learn_from_rejection(state, cost, at, told, repeated)
    local in_flight = of(state[YOUNG], 'requests') + of(state[OLD], 'requests')
    if #state[LANES] == 0 and told <= LONGEST then
      local lane = { 'requests', 1, told, 1, ESTIMATED, 0, 0, 1, UNSTATED, 0, {}, NEVER, NEVER, NEVER, '',
        false, NEVER, 0, false, 0, -1, NEVER, NEVER, NEVER, 0, NEVER }
      compile(lane)
      state[LANES][1] = lane
    end
    local lane = unstated(state)
    if not lane then return end
    refund(lane, of(cost, 'requests'), at)
    roll(lane)
    if repeated then return end
    local limit, known, quiet = limit_of(lane), lane[WINDOW], lane[QUIET]
    local passed = min(floor(max(lane[PASSED_BEFORE] + lane[LEVEL] - in_flight, 0) / UNIT), MOST)
    local took = (lane[COUNTED] ~= NEVER and max(-lane[COUNTED], 0) or 0) + told
    local window
    if passed == 0 then
      -- It is not the limit that is lower, but the window that is longer.
      window = quiet == 0 and took or (told > max_hold and max(known, told)) or known + told
    elseif quiet == 0 then
      -- Now it was counted from the beginning.
      local whole = floor(took / SECOND) * SECOND
      window = lane[PASSED_BEFORE] == 0 and whole > 0 and whole or took
      limit[UNITS], window = passed, window + floor(window / 64)
    else
      -- So much passed in all that time, the hold included: the server allows no more.
      local units = min(limit[UNITS], passed)
      window = max(muldiv(took, units, passed), (muldiv(known, units, limit[UNITS])))
      limit[UNITS] = units
    end
    if window <= LONGEST then limit[WINDOW] = window end
    limit[BURST] = limit[UNITS]
    if passed > 0 or quiet > 0 then
      lane[QUIET] = AGAIN + 1 - min(max(floor(told * DEAR / limit[WINDOW]), SOONEST), AGAIN)
    end
    lane[PASSED_BEFORE], lane[COUNTED], lane[RESET] = 0, NEVER, state[HOLD]
    relimit(lane, limit)
  end

  local function reject(state, cost, at, retry_after)
    local repeated = state[HOLD] > 0
    local named = retry_after > 0 and retry_after or nil
    local span = min(named or FLOOR * 2 ^ min(state[STRIKES], 16), max_hold)
    state[HOLD] = max(state[HOLD], span)
    if not repeated then state[STRIKES] = state[STRIKES] + 1 end
    local refills = false
    for _, lane in ipairs(state[LANES]) do
      if lane[KIND] == BUCKET then
        refills = true
        lane[LEVEL] = max(lane[LEVEL], state[HOLD] * lane[FINENESS] + lane[DEPTH])
      end
    end
    if (named and named > max_hold) or not refills then state[PHASE] = FIRST end
    if not repeated then
      -- A span that was only seen to slide is longer than it looked.
      for _, lane in ipairs(state[LANES]) do
        if lane[KIND] == STRICT and lane[ORIGIN] ~= BY_HAND then
          local limit = limit_of(lane)
          local longer = limit[WINDOW] + floor(limit[WINDOW] / 16)
          if longer <= LONGEST then limit[WINDOW] = longer end
          relimit(lane, limit)
        end
      end
    end
    if named then learn_from_rejection(state, cost, at, named, repeated) end
  end

  -- Where nobody stated a limit, it is at least what has passed in this window.
  local function count_passed(state)
    local lane = unstated(state)
    if not lane then return end
    local in_flight = of(state[YOUNG], 'requests') + of(state[OLD], 'requests')
    local _, spent = window_of(lane)
    local passed = min(floor(max(spent - in_flight, 0) / UNIT), MOST)
    if passed > lane[UNITS] then
      local limit = limit_of(lane)
      limit[UNITS], limit[BURST] = passed, passed
      relimit(lane, limit)
    end
  end

  -- A twentieth below the peak, the peak after as many requests as it takes back, and more beyond.
  local function cubic(peak, passed)
    local back = max(BACK, floor(peak / 40))
    local far = min(floor(math.abs(back - passed) * 100 / back), STEEPEST * 100)
    local part = div(peak * far * far * far, 10000000)
    return passed < back and peak - floor(part / 2) or peak + part
  end

  local function search_on(state, passed, left)
    for _, lane in ipairs(state[LANES]) do
      local search = lane[SEARCH]
      if search then
        local rate = lane[UNITS]
        local next_rate = rate
        if search[SINCE_PASSED] == NEVER then search[SINCE_PASSED] = 0 end
        if passed then
          search[PASSED] = search[PASSED] + 1
          if search[REFUSED] ~= NEVER and left >= search[REFUSED] then
            search[STREAK] = search[STREAK] + 1
          end
          local over = search[REFUSED] ~= NEVER and search[STREAK] >= OVER
          if over then
            local measured = muldiv(search[PASSED], 60 * SECOND, max(-search[SINCE_PASSED], 1))
            local before = search[PEAK] - floor(search[PEAK] / 5)
            search[PEAK] = min(max(measured, before, 1), MOST_RATE)
            search[PASSED], search[SINCE_PASSED], search[REFUSED] = 0, 0, NEVER
          end
          if search[REFUSED] ~= NEVER then
            next_rate = rate
          elseif search[PEAK] == 0 then
            next_rate = rate + max(floor(rate / 16), 1)
          else
            next_rate = cubic(search[PEAK], search[PASSED])
          end
          next_rate = min(max(next_rate, 1), MOST_RATE)
        else
          -- Where too little passes between two rejections to measure anything, a lower rate.
          if search[REFUSED] ~= NEVER and search[STREAK] > 0 then
            next_rate = max(rate - floor(rate / 4), 1)
          end
          search[REFUSED], search[STREAK] = 0, 0
        end
        local limit = limit_of(lane)
        limit[UNITS], limit[BURST] = next_rate, 1 + floor(next_rate / 3000)
        relimit(lane, limit)
      end
    end
  end

  return reject, count_passed, search_on, learn, keep_lanes
end

-- The server has counted a request not later than the quickest answer ever took before now.
local function arrived(state, cost, at)
  local took, quickest = max(-at, 0), state[QUICKEST]
  quickest = quickest == 0 and took or min(took, quickest + floor(quickest / 64) + 1)
  state[QUICKEST] = quickest
  local counted = at + max(took - quickest, 0)
  for _, lane in ipairs(state[LANES]) do
    local amount = of(cost, lane[DIMENSION])
    if lane[KIND] == BUCKET and lane[BURST] == 1 and amount > 0 then
      local advance = ticks(lane, amount)
      local due = min(counted * lane[FINENESS] + advance, CENTURY)
      if due > lane[LEVEL] + floor(advance / 16) then lane[LEVEL] = due end
    elseif lane[KIND] == STRICT and lane[ORIGIN] ~= BY_HAND and amount > 0
      and counted > at + floor(lane[WINDOW] / 512) then
      -- In a span that slides it is free one window after it was counted.
      local entries, frees, from = lane[ENTRIES], counted + lasting_of(lane) + 1, 1
      for k = 1, #entries do
        if entries[k][1] <= at then from = k end
      end
      for k = from, #entries do entries[k][2] = max(entries[k][2], frees) end
    end
  end
end

-- The operations -----------------------------------------------------------------------------------

local operations = {}
-- A scope in which one had to wait: those behind it do not overtake.
local full = {}

local function relative(at) return (at - now) * 1000 end

-- What nobody stated a limit for has to be tried where more passes than ever did.
local function doubtful(state, cost)
  local lane = unstated(state)
  local amount = lane and of(cost, lane[DIMENSION]) or 0
  if amount == 0 then return false end
  local spread, quiet = lane[SPREAD], lane[QUIET]
  if is_over(lane) then spread, quiet = following(lane) end
  return is_unknown(lane, spread, quiet) and remaining(lane) < amount
end

-- Charges a cost and counts it as in flight. Gives { scope, instant, tally before }.
local function grant(state, i, cost)
  touched[i] = true
  spend(state, cost)
  turn(state)
  add(state[YOUNG], cost)
  local before = {}
  for k, pair in ipairs(state[OVER]) do before[k] = { pair[1], pair[2] } end
  return { i, now, before }
end

-- Gives { scope, instant, tally before } when it is granted, { scope, wait, what for } when it is not,
-- and false behind others who wait.
local function charge(candidates, cost, permit)
  local state, i = governing(candidates)
  if full[i] then return false end
  if not state then return { i, now, {} } end
  local after, by = 0, BY_FIRST
  if permit and state[PHASE] == ASKING and state[UNTIL] > 0 then
    after = state[UNTIL]
  else
    after, by = wait(state, cost)
  end
  if after > 0 then
    full[i] = true
    return { i, after, by }
  end
  if not permit then
    touched[i] = true
    spend(state, cost)
    return { i, now, {} }
  end
  -- Another one goes when the first has no answer in time; then either answer will do.
  if state[PHASE] == FIRST or (state[PHASE] == OPEN and doubtful(state, cost)) then
    state[PHASE], state[SINCE] = FIRST, 0
  end
  if state[PHASE] ~= OPEN then state[PHASE], state[UNTIL] = ASKING, PATIENCE end
  return grant(state, i, cost)
end

function operations.admit(candidates, cost) return charge(candidates, cost, true) end

function operations.charge(candidates, cost) return charge(candidates, cost, false) end

-- Admits `many` requests at once, to be used within `span`: the bucket has to have room for them that
-- much earlier. Where it is too small for that, or counts otherwise, one is admitted as usual.
-- Gives { scope, instant, tally before, how many } when they are granted.
function operations.lease(candidates, cost, many, span)
  local state, i = governing(candidates)
  if full[i] then return false end
  local alone = not state or state[HOLD] > 0 or state[PHASE] ~= OPEN
  local after, by = 0, BY_HOLD
  if not alone then
    local lanes = {}
    for k, lane in ipairs(state[LANES]) do
      if lane[DIMENSION] == 'requests' then lanes[k] = lane end
    end
    -- No more than refills within half of the span, so that nobody waits for longer than that.
    for _, lane in pairs(lanes) do
      many = min(many, max(floor(span * lane[FINENESS] / 2 / lane[ONE]), 1))
    end
    for k, lane in pairs(lanes) do
      local room = lane[DEPTH] - span * lane[FINENESS]
      alone = alone or lane[KIND] ~= BUCKET or room < many * lane[ONE]
      local wait = ceil((lane[LEVEL] + many * lane[ONE] - room) / lane[FINENESS])
      if wait > after then after, by = wait, k end
    end
  end
  if alone then
    local answer = charge(candidates, cost, true)
    if answer and type(answer[3]) == 'table' then answer[4] = 1 end
    return answer
  end
  if after > 0 then
    full[i] = true
    return { i, after, by }
  end
  local answer = grant(state, i, { { 'requests', many * UNIT } })
  answer[4] = many
  return answer
end

function operations.settle(i, cost, at, actual)
  if not states[i] then return false end
  touched[i] = true
  settle(states[i], cost, relative(at), actual)
  return true
end

function operations.close(i, cost, at)
  if not states[i] then return false end
  touched[i] = true
  local first = land(states[i], cost, relative(at))
  forget_nothing_known(states[i])
  return first
end

function operations.give_back(i, cost, at)
  local state = states[i]
  if not state then return false end
  touched[i] = true
  at = relative(at)
  settle(state, cost, at, {})
  land_in_flight(state, cost, at)
  if was_first(state, at) then state[PHASE] = FIRST end
  return true
end

function operations.observe(i, cost, at, before, rejected, retry_after, signals)
  local state = states[i]
  -- What was granted there is not counted here: the scope is new, or was forgotten.
  if not state then before = {} end
  state = exactly(i)
  at = relative(at)
  local reject, count_passed, search_on, learn = learning()
  local late = at < state[ANSWERED]
  land(state, cost, at)
  turn(state)
  if rejected then
    reject(state, cost, at, retry_after)
  else
    state[STRIKES] = 0
    count_passed(state)
  end
  search_on(state, not rejected, at)
  for _, signal in ipairs(signals) do learn(state, cost, before, signal, late, rejected) end
  if not rejected then arrived(state, cost, at) end
  if #state[LANES] > 0 and #signals > 0 and not rejected then state[PHASE] = OPEN end
  forget_nothing_known(state)
  return true
end

function operations.limit(i, limit)
  local _, _, _, _, keep_lanes = learning()
  local state, known = exactly(i), nil
  -- What is only documented says nothing where something is known.
  if limit[ORIGIN] == REGISTRY then
    for _, lane in ipairs(state[LANES]) do
      if lane[DIMENSION] == limit[DIMENSION] then return true end
    end
  end
  for _, lane in ipairs(state[LANES]) do
    if lane[DIMENSION] == limit[DIMENSION] and lane[WINDOW] == limit[WINDOW] then
      known = known or lane
    end
  end
  if known then
    relimit(known, limit)
  else
    state[LANES][#state[LANES] + 1] = limit
  end
  keep_lanes(state, function(lane)
    return lane[ORIGIN] == BY_HAND or lane[DIMENSION] ~= limit[DIMENSION] or limit[ORIGIN] ~= BY_HAND
  end)
  state[PHASE] = OPEN
  return true
end

-- As much as is left of what was spent without asking.
function operations.spend(candidates, cost)
  local state, i = governing(candidates)
  if not state then return false end
  touched[i] = true
  for _, lane in ipairs(state[LANES]) do
    local amount = min(of(cost, lane[DIMENSION]), remaining(lane))
    if amount > 0 then spend_lane(lane, amount) end
  end
  return true
end

local refused = load_all()
if refused then return refused end
local answers = {}
for k, operation in ipairs(batch[5]) do
  answers[k] = operations[operation[1]](unpack(operation, 2))
end
local reply = { now, cmsgpack.pack(answers) }
for i = 1, #KEYS do
  local state, packed = states[i], stored[i]
  if state then
    if touched[i] or not packed then
      state[AT] = now
      packed = cmsgpack.pack(state)
    end
    if touched[i] then
      local least = ceil(kept(state) / UNIT)
      if least > 0 then
        redis.call('SET', KEYS[i], packed, 'PX', string.format('%.0f', least))
      else
        redis.call('DEL', KEYS[i])
      end
    end
    reply[#reply + 1] = i
    reply[#reply + 1] = packed
  end
end
return reply
