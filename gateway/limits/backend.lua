-- Counts what a tenant, its keys and its adapters have used, and reserves from all of their limits at once.
-- `memory_backend.py` does the same in Python, under the same tests; change both.
--
-- KEYS[1]  hash     subject's name -> its state (MessagePack), and "born": the incarnation of this state
-- KEYS[2]  hash     lease's id -> what it holds (MessagePack), or "" for a settled lease
-- KEYS[3]  zset     lease's id -> when it expires
-- ARGV[1]  the incarnation that the caller knows, or ""
-- ARGV[2]  the operations, in order, as JSON; see `operations.py`
--
-- All three keys carry the tenant's id as their hash tag, so they share a slot of a cluster. Times are microseconds, by
-- Redis' clock. The response is JSON; its numbers are text, because JSON and Redis' own replies would truncate them.

local WINDOW = 60e6       -- of the limits per minute
local DAY = 86400e6
local MAX_LOWS = 16       -- of a bucket; more are merged
local SWEEP = 64          -- leases that one call expires at least, if there are so many
local TOMBSTONE = 60e6    -- how long a settled lease is remembered, so that no settlement counts twice
local IDLE = 3600e6       -- an entry that is unused for so long is dropped: the ledger has its totals
local ENTRIES = 64        -- of one tenant; fewer are not looked at
local PURGED = 4          -- entries that one call looks at, if there are more
local LIFE = 3456000      -- seconds that unused keys are kept: the totals of a month must outlast the month

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1e6 + tonumber(time[2])
local operations = cjson.decode(ARGV[2])
local operation           -- the current one

local function month_of(day)
  -- Converts days since 1970 to months since year 0 (H. Hinnant, "chrono-compatible low-level date algorithms").
  local z = day + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local month = mp < 10 and mp + 3 or mp - 9
  return (yoe + era * 400 + (month <= 2 and 1 or 0)) * 12 + month - 1
end

local today = math.floor(now / DAY)
local this_month = month_of(today)

-- Subjects -----------------------------------------------------------------------------------------------------------

local subjects = {}

local function subject(name)
  if not subjects[name] then
    local raw = redis.call('HGET', KEYS[1], name)
    subjects[name] = raw and cmsgpack.unpack(raw) or { r = 0, t = 0, c = 0, g = 0, gu = 0, low = {} }
    subjects[name].low = subjects[name].low or {}
  end
  return subjects[name]
end

local function is_empty(s)
  return s.r <= now and s.t <= now and s.c == 0 and (s.g == 0 or s.gu <= now)
end

-- Drops entries that nothing has used for long, such as those of revoked keys and deleted adapters.
local function purge()
  if redis.call('HLEN', KEYS[1]) <= ENTRIES then return end
  local some = redis.call('HRANDFIELD', KEYS[1], PURGED, 'WITHVALUES')
  for i = 1, #some, 2 do
    if some[i] ~= 'born' and not subjects[some[i]] then
      local s = cmsgpack.unpack(some[i + 1])
      if is_empty(s) and now - (s.u or 0) > IDLE then redis.call('HDEL', KEYS[1], some[i]) end
    end
  end
end

local function save()
  for name, s in pairs(subjects) do
    redis.call('HSET', KEYS[1], name, cmsgpack.pack(s))
  end
  purge()
  for i = 1, 3 do
    redis.call('EXPIRE', KEYS[i], LIFE)
  end
end

local function roll_over(s)
  if s.d and s.d < today then s.d, s.ds = today, 0 end
  if s.m and s.m < this_month then s.m, s.ms = this_month, 0 end
end

local function in_flight(s)
  return s.c + (s.gu > now and s.g or 0)
end

-- Buckets of tokens (GCRA) -------------------------------------------------------------------------------------------

-- Records the low points of a bucket as pairs of (when, backlog), both ascending: the first pair after a moment is the
-- lowest level since then.
local function note_low(s, backlog)
  local low = s.low
  while #low > 0 and low[#low] >= backlog do
    low[#low] = nil
    low[#low] = nil
  end
  low[#low + 1] = now
  low[#low + 1] = backlog
  if #low > 2 * MAX_LOWS then
    low[1] = low[3]
    table.remove(low, 3)
    table.remove(low, 3)
  end
end

local function low_since(s, since)
  for i = 1, #s.low, 2 do
    if s.low[i] > since then return s.low[i + 1] end
  end
  return math.huge
end

local function charge(s, cost)
  local base = math.max(s.t, now)
  note_low(s, base - now)
  s.t = base + cost
end

-- Lowers what was recorded after `since`, and drops what was recorded before and is no longer lower.
local function lower(s, since, amount)
  local lowest = low_since(s, since) - amount
  local low = {}
  for i = 1, #s.low, 2 do
    local after = s.low[i] > since
    if after or s.low[i + 1] < lowest then
      low[#low + 1] = s.low[i]
      low[#low + 1] = s.low[i + 1] - (after and amount or 0)
    end
  end
  s.low = low
end

-- Makes the level what it would be if `cost` less had been charged at `since`: what would have leaked out of an empty
-- bucket since then is not refunded. The lows since then would have been lower as well.
local function refund(s, cost, since)
  local backlog = math.max(s.t, now) - now
  local amount = math.min(cost, backlog, low_since(s, since))
  s.t = now + backlog - amount
  lower(s, since, amount)
  note_low(s, backlog - amount)
end

-- Leases -------------------------------------------------------------------------------------------------------------

local function add_tokens(lease, tokens, since)
  for name, each in pairs(lease.s) do
    local s = subject(name)
    roll_over(s)
    s.u = now
    if each > 0 and tokens > 0 then charge(s, tokens * each) end
    if each > 0 and tokens < 0 then refund(s, -tokens * each, since) end
    if s.d == lease.d then s.ds = math.max(0, s.ds + tokens) end
    if s.m == lease.m then s.ms = math.max(0, s.ms + tokens) end
  end
end

local function release_places(lease)
  for name in pairs(lease.s) do
    local s = subject(name)
    s.c = math.max(0, s.c - 1)
  end
end

local function put(id, lease, expires)
  redis.call('HSET', KEYS[2], id, lease and cmsgpack.pack(lease) or '')
  redis.call('ZADD', KEYS[3], string.format('%.17g', expires), id)
end

local function sweep()
  local limit = SWEEP + 2 * #operations
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', string.format('%.17g', now), 'LIMIT', 0, limit)) do
    local raw = redis.call('HGET', KEYS[2], id)
    if raw and raw ~= '' then
      local lease = cmsgpack.unpack(raw)
      add_tokens(lease, -lease.n, lease.at)
      release_places(lease)
    end
    redis.call('HDEL', KEYS[2], id)
    redis.call('ZREM', KEYS[3], id)
  end
end

-- Operations ---------------------------------------------------------------------------------------------------------

-- Redis may have evicted one of the keys and kept the others, so each key holds the incarnation that it belongs to.
local function incarnation()
  local born = redis.call('HGET', KEYS[1], 'born')
  local whole = born and redis.call('HGET', KEYS[2], 'born') == born and redis.call('ZSCORE', KEYS[3], born)
  return whole and born or ''
end

local born = incarnation()

local function text(number)
  return string.format('%.17g', number)
end

local function result(verdict, exceeded)
  local states = {}
  for i, asked in ipairs(operation.subjects or {}) do
    local s = subject(asked.name)
    roll_over(s)
    states[i] = {
      text(s.r), text(s.t), text(s.d or -1), text(s.ds or 0), text(s.m or -1), text(s.ms or 0), text(in_flight(s)),
    }
  end
  return { verdict, exceeded or {}, states }
end

local function is_unknown()
  if born == '' or (ARGV[1] ~= '' and ARGV[1] ~= born) then return true end
  for _, asked in ipairs(operation.subjects) do
    local s = subject(asked.name)
    if (asked.day and not s.d) or (asked.month and not s.m) then return true end
  end
  return false
end

local function exceed(exceeded, index, kind, wait)
  exceeded[#exceeded + 1] = { tostring(index - 1), kind, text(wait) }
end

local function check(index, asked, exceeded)
  local s = subject(asked.name)
  roll_over(s)
  if asked.requests then
    local wait = math.max(s.r, now) + WINDOW / asked.requests - now - WINDOW
    if wait > 0.5 then exceed(exceeded, index, 'requests', wait) end
  end
  if asked.tokens then
    local wait = math.max(s.t, now) + operation.tokens * WINDOW / asked.tokens - now - WINDOW
    if wait > 0.5 then exceed(exceeded, index, 'tokens', wait) end
  end
  if asked.concurrency and in_flight(s) >= asked.concurrency then exceed(exceeded, index, 'concurrency', -1) end
  if asked.day and s.ds + operation.tokens > asked.day then exceed(exceeded, index, 'day', -1) end
  if asked.month and s.ms + operation.tokens > asked.month then exceed(exceeded, index, 'month', -1) end
end

local function costs()
  local each = {}
  for _, asked in ipairs(operation.subjects) do
    each[asked.name] = asked.tokens and WINDOW / asked.tokens or 0
  end
  return each
end

local function new_lease()
  return { at = now, n = 0, s = costs(), d = today, m = this_month }
end

local execute = {}

function execute.reserve()
  if is_unknown() then return result('lost') end
  -- Its own settlement overtook this reservation because the caller had left, so nothing is reserved.
  if redis.call('HEXISTS', KEYS[2], operation.id) == 1 then return result('ok') end
  local exceeded = {}
  for index, asked in ipairs(operation.subjects) do
    check(index, asked, exceeded)
  end
  if #exceeded > 0 then return result('no', exceeded) end
  local lease = new_lease()
  add_tokens(lease, operation.tokens, now)
  lease.n = operation.tokens
  for _, asked in ipairs(operation.subjects) do
    local s = subject(asked.name)
    s.c = s.c + 1
    if asked.requests then s.r = math.max(s.r, now) + WINDOW / asked.requests end
  end
  put(operation.id, lease, now + operation.life)
  return result('ok')
end

function execute.extend()
  if is_unknown() then return result('lost') end
  local raw = redis.call('HGET', KEYS[2], operation.id)
  if raw and raw ~= '' then
    local lease = cmsgpack.unpack(raw)
    add_tokens(lease, operation.tokens, now)
    lease.n = lease.n + operation.tokens
    put(operation.id, lease, now + operation.life)
  end
  return result('ok')
end

-- Charges the tokens even for an unknown lease: it expired, or was granted while this backend was unavailable.
function execute.settle()
  if is_unknown() then return result('lost') end
  local raw = redis.call('HGET', KEYS[2], operation.id)
  if raw ~= '' then
    local lease = raw and cmsgpack.unpack(raw) or new_lease()
    add_tokens(lease, operation.tokens - lease.n, lease.at)
    if raw then release_places(lease) end
    put(operation.id, nil, now + TOMBSTONE)
  end
  return result('ok')
end

function execute.renew()
  if is_unknown() then return result('lost') end
  for _, id in ipairs(operation.ids) do
    redis.call('ZADD', KEYS[3], 'XX', text(now + operation.life), id)
  end
  return result('ok')
end

-- Takes over what a process observed before the state was lost: the later state counts. The leases of other processes
-- are counted without details until those processes import them.
local function restore_state(asked, lost)
  local s = subject(asked.name)
  local seen = asked.seen
  if lost and seen and seen.at > (s.sa or 0) then
    s.sa = seen.at
    s.r = math.max(s.r, seen.r)
    if seen.t > s.t then
      s.t = seen.t
      note_low(s, math.max(0, seen.t - now))
    end
    local missing = seen.c - s.c - s.g
    if missing > 0 then s.g, s.gu = s.g + missing, now + operation.life end
  end
  if asked.ds then
    s.ds = math.max(s.d == today and s.ds or 0, asked.d == today and asked.ds or 0)
    s.d = today
  end
  if asked.ms then
    s.ms = math.max(s.m == this_month and s.ms or 0, asked.m == this_month and asked.ms or 0)
    s.m = this_month
  end
end

local function restore_lease(held)
  if redis.call('HEXISTS', KEYS[2], held.id) == 1 then return end
  local lease = { at = now, n = held.tokens, s = {}, d = today, m = this_month }
  for _, asked in ipairs(held.subjects) do
    lease.s[asked.name] = asked.tokens and WINDOW / asked.tokens or 0
    local s = subject(asked.name)
    s.c = s.c + 1
    s.g = math.max(0, s.g - 1)
  end
  put(held.id, lease, now + operation.life)
end

-- Imports leases that were granted while this backend was unavailable.
function execute.adopt()
  if is_unknown() then return result('lost') end
  for _, held in ipairs(operation.leases) do restore_lease(held) end
  return result('ok')
end

function execute.restore()
  local lost = born == '' or born ~= ARGV[1]
  if born == '' then
    redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
    subjects = {}
    redis.call('HSET', KEYS[1], 'born', operation.fresh)
    redis.call('HSET', KEYS[2], 'born', operation.fresh)
    redis.call('ZADD', KEYS[3], '+inf', operation.fresh)
    born = operation.fresh
  end
  if lost then
    for _, held in ipairs(operation.leases) do restore_lease(held) end
  end
  for _, asked in ipairs(operation.subjects) do
    restore_state(asked, lost)
  end
  return result('ok')
end

sweep()
local results = {}
for i, each in ipairs(operations) do
  operation = each
  results[i] = execute[each.what]()
end
save()
return cjson.encode({ born = born, now = text(now), replies = results })
