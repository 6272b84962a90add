-- Every write of the store: applies the changes of one transaction, or drops a cluster.
--
-- Redis does not undo a script that fails half-way. So everything is read and checked first (types, format,
-- identity, precondition, what becomes of each change), and the first write is the one that Redis may refuse
-- (no memory, read-only, no replicas, an id that is not newer): if it goes through, the rest does.
-- Versions and transaction numbers are decimal strings: a Lua number is exact up to 2^53 only.
--
-- KEYS, all of one cluster C and in one hash slot
--    1  ts:{C}:meta         hash    format, identity, number and tag (of the newest transaction), total (changes
--                                   ever logged), oldest (number of the oldest transaction in the log), marks
--                                   ("number:total ...", where the log may be cut), dropped ("identity ...",
--                                   newest first), dropped_at (milliseconds), vouched ("kind:milliseconds
--                                   ...", each more than before), counts (number, then how many entries each key of
--                                   COUNTED has, where a key that was evicted or deleted shows), listed (number,
--                                   then how many entries names has: of another number or count, they are made anew)
--    2  ts:{C}:node         hash    name                  -> value
--    3  ts:{C}:pod          hash    namespace/name        -> value
--    4  ts:{C}:workload     hash    kind/namespace/name   -> value; also of how far the API server was read
--    5  ts:{C}:reservation  hash    namespace/name        -> value, with 13 digits before the payload: when it
--                                                            is due, in milliseconds (0: never)
--    6  ts:{C}:log          stream  <number>-0: t = tag, p = tag before it, then one field for each change:
--                                   its mark (= relevant, ~ same digest, - deleted) and kind/namespace/name; with the
--                                   value, of what was deleted with what stood before its payload
--    7  ts:{C}:touched      hash    scope                 -> number of its last relevant change
--    8  ts:{C}:tombstone    hash    kind/namespace/name   -> "milliseconds version uid"
--    9  ts:{C}:buried       zset    kind/namespace/name by milliseconds
--   10  ts:{C}:expiry       zset    namespace/name of reservations by when they are due
--   11  ts:{C}:feeder       hash    holder, fence, until (milliseconds) of the cluster's lease,
--                                   and the milliseconds that it was granted_for
--   12  ts:{C}:names        zset    kind NUL namespace NUL name of the objects that are listed, in the order of bytes
--   13  ts:{C}:undo         stream  <number>-0: t = tag, then kind/namespace/name of each listed object that
--                                   the transaction changed, with the value that it had before, or nothing
--
-- ARGV[1] = "apply", or "purge" for a write of what is due alone, ARGV[2] = format, then
--    3  identity for a cluster that is not there yet        4  identity that it must have, or ""
--    5  tag of this transaction                             6  "1" to write older versions, too
--    7  changes that the log keeps                          8  milliseconds that tombstones last
--    9  tombstones that are kept                           10  number of the precondition's revision, or ""
--   11  tag of the precondition's revision                 12  fence that the cluster's lease must have, or ""
--   13  how many scopes follow
--   then the scopes; then for each change "p", kind/namespace/name, value
--                                     or "e", kind/namespace/name, value: a pod that ends its reservation
--                                     or "v", kind/namespace/name, header, payload, milliseconds or "": a reservation
--                                     or "r", kind/namespace/name, uid, up to version
-- ARGV[1] = "drop", ARGV[2] = format, 3 = identities remembered, 4 = milliseconds that they are remembered,
--    5 = identity that it must have, or ""
-- ARGV[1] = "vouch", 2 to 5 as for drop, 6 = identity that counts as dropped from now on, or "", then the
--    numbers of the kinds; without a cluster it is remembered for 4 as well
-- ARGV[1] = "lease", ARGV[2] = format, 3 = who asks, 4 = milliseconds, 0 to give it back, 5 = fence of the lease
--    that is to be renewed or given back, or "" to take any that is free
-- ARGV[1] = "range", ARGV[2] = format, 3 and 4 = bounds for ZRANGEBYLEX of names, 5 = how many, 6 = bytes of values
--    after which it ends early
-- ARGV[1] = "probe": what the user may not run, of the commands used here
--
-- A value begins with: length of the version, version, 8 bytes of digest, length of the uid, uid.
-- The rules for one change are stated in rules.py as well.
--
-- Answers: {"OK", number, tag, number before, tag before, one letter for each change, milliseconds that
-- lifetimes are counted from, identity, namespace/name of each reservation that ended without being among the
-- changes ...}, {"OK", count, identity or ""} for drop, {"OK"} for vouch,
-- {"OK", holder, fence, milliseconds left, milliseconds that it was granted for, when it ends} for lease,
-- {"RANGE", "1" where it ended early or "0", name, value ...} for range,
-- {"FENCED", holder}, {"FORMAT", found}, {"IDENTITY", found}, {"TRIMMED"}, {"DIVERGED"}, {"CONFLICT", scope, number},
-- {"VANISHED", key, counts as noted, counts as found}: entries are gone that no write removed,
-- {"UNREADABLE", what, what stands there}: what is noted in meta or touched is none of ours.

local META, NODE, POD, WORKLOAD, RESERVATION = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local LOG, TOUCHED, TOMBSTONE, BURIED, EXPIRY = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local FEEDER, NAMES, UNDO = KEYS[11], KEYS[12], KEYS[13]
local HASHES = {['1'] = NODE, ['2'] = POD, ['7'] = RESERVATION}
local COUNTED = {NODE, POD, WORKLOAD, RESERVATION, TOUCHED}
local GRAINS = 64
local UNDO_SHARE = 4
local BATCH = 100
local MAX_PURGED = 100
local MAX_LEASE = 3600000

local call = redis.call

local function older(left, right)
  if #left ~= #right then return #left < #right end
  return left < right
end

local function successor(number)
  if #number < 16 then return string.format('%.0f', tonumber(number) + 1) end
  local head, nines = string.match(number, '^(%d-)(9*)$')
  if head == '' then return '1' .. string.rep('0', #nines) end
  return string.sub(head, 1, -2) .. (string.byte(head, -1) - 47) .. string.rep('0', #nines)
end

local function milliseconds()
  local now = call('TIME')
  return tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
end

-- version, digest and uid of a value; nil when it cannot be read
local function header(value)
  local v = string.byte(value, 1)
  if not v or #value < v + 10 then return nil end
  local u = string.byte(value, v + 10)
  if #value < v + 10 + u then return nil end
  local version = string.sub(value, 2, v + 1)
  if string.find(version, '[^0-9]') then return nil end
  return version, string.sub(value, v + 2, v + 9), string.sub(value, v + 11, v + 10 + u)
end

-- what stands before the payload of a value, or nothing when it cannot be read
local function front(value)
  if not header(value) then return '' end
  local v = string.byte(value, 1)
  return string.sub(value, 1, v + 10 + string.byte(value, v + 10))
end

-- the hash of a written name, and its field there
local function place(name)
  local kind = string.sub(name, 1, 1)
  if kind == '1' then return NODE, string.sub(name, 4) end
  if HASHES[kind] then return HASHES[kind], string.sub(name, 3) end
  return WORKLOAD, name
end

local function scope(name)
  if string.sub(name, 1, 1) == '1' then return 'nodes/' end
  return string.match(name, '^%d/([^/]*)/')
end

-- the name of an object as it is listed, or nil for what is not
local function listed(name)
  if not string.find(name, '^[1-6]/') then return nil end
  return (string.gsub(name, '/', '\0', 2))
end

-- A cluster that lost its meta: numbers go on after the stream's own last id, so that none is used twice.
local function leftover()
  local found = {number = '0', tag = '', total = 0, oldest = '1'}
  if call('EXISTS', LOG) == 0 then return found end
  local info = call('XINFO', 'STREAM', LOG)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then found.number = string.match(info[i + 1], '^%d+') end
  end
  local newest = call('XREVRANGE', LOG, '+', '-', 'COUNT', 1)[1]
  found.oldest = successor(found.number)
  if newest then
    found.tag = newest[2][2]
    found.oldest = string.match(call('XRANGE', LOG, '-', '+', 'COUNT', 1)[1][1], '^%d+')
  end
  return found
end

local function counts()
  local found = {}
  for i, key in ipairs(COUNTED) do found[i] = call('HLEN', key) end
  return table.concat(found, ' ')
end

-- refusal when keys have fewer entries than was noted, or nil; more can be foreign ones, which are skipped
local function vanished(cluster)
  -- Also without a note: a key of a wrong type is to fail here, before anything is written.
  local found, i = counts(), 0
  local at, noted = string.match(cluster.counts or '', '^(%d+) (.*)$')
  -- Of another number is what a server left that notes nothing.
  if at ~= cluster.number then return nil end
  local now = string.gmatch(found, '%d+')
  for count in string.gmatch(noted, '%d+') do
    i = i + 1
    if tonumber(now() or '0') < tonumber(count) then return {'VANISHED', COUNTED[i], noted, found} end
  end
  return nil
end

local function load()
  local meta = call('HMGET', META, 'format', 'identity', 'number', 'tag', 'total', 'oldest', 'counts', 'listed')
  if meta[1] and meta[1] ~= ARGV[2] then return nil, {'FORMAT', meta[1]} end
  if not meta[2] then
    local found = leftover()
    found.identity = ''
    return found
  end
  for i, name in pairs({[3] = 'number', [5] = 'total', [6] = 'oldest'}) do
    if meta[i] and not string.match(meta[i], '^%d+$') then return nil, {'UNREADABLE', name, meta[i]} end
  end
  for i, name in pairs({[2] = 'identity', [4] = 'tag'}) do
    if meta[i] and string.find(meta[i], '[^ -~]') then return nil, {'UNREADABLE', name, meta[i]} end
  end
  return {
    identity = meta[2], number = meta[3] or '0', tag = meta[4] or '',
    total = tonumber(meta[5] or '0'), oldest = meta[6] or '1', counts = meta[7] or nil,
    listed = meta[8] or nil,
  }
end

-- why a revision is no part of the log, or nil
local function unreachable(cluster, number, tag)
  if number == cluster.number then
    if tag ~= cluster.tag then return 'DIVERGED' end
    return nil
  end
  if older(cluster.number, number) then return 'DIVERGED' end
  local id = successor(number) .. '-0'
  local entry = call('XRANGE', LOG, id, id)[1]
  if not entry then return 'TRIMMED' end
  if entry[2][4] ~= tag then return 'DIVERGED' end
  return nil
end

-- refusal by the precondition, or nil
local function changed(cluster, scopes)
  local number = ARGV[10]
  local reason = unreachable(cluster, number, ARGV[11])
  if reason then return {reason} end
  if #scopes == 0 then return nil end
  local last = call('HMGET', TOUCHED, unpack(scopes))
  for i, at in ipairs(scopes) do
    if last[i] and (not string.match(last[i], '^%d+$') or older(cluster.number, last[i])) then
      return {'UNREADABLE', 'touched ' .. at, last[i]}
    end
    if last[i] and older(number, last[i]) then return {'CONFLICT', at, last[i]} end
  end
  return nil
end

-- the changes, whether there are removals, and whether there are lifetimes among them
local function parse(at)
  local changes, removes, lifetimes = {}, false, false
  while ARGV[at] do
    local word = ARGV[at]
    local change = {put = word ~= 'r', name = ARGV[at + 1]}
    change.hash, change.field = place(change.name)
    if word == 'r' then
      change.uid, change.upto = ARGV[at + 2], ARGV[at + 3]
      change.ends = change.hash == POD
      removes = true
      at = at + 4
    elseif word == 'v' then
      change.front, change.payload, change.lifetime = ARGV[at + 2], ARGV[at + 3], tonumber(ARGV[at + 4])
      if change.lifetime then lifetimes = true end
      at = at + 5
    else
      change.value, change.ends = ARGV[at + 2], word == 'e'
      at = at + 3
    end
    changes[#changes + 1] = change
  end
  return changes, removes, lifetimes
end

-- values of reservations, which depend on the clock
local function date(changes, now)
  for _, change in ipairs(changes) do
    if change.front then
      change.due = change.lifetime and now + change.lifetime or 0
      change.value = change.front .. string.format('%013.0f', change.due) .. change.payload
    end
  end
end

-- what is reserved for the pods of the changes that may end it, if there are reservations at all
local function read_reserved(changes)
  local fields, places = {}, {}
  for _, change in ipairs(changes) do
    if change.ends then
      table.insert(fields, change.field)
      table.insert(places, change)
    end
  end
  if #fields == 0 or call('HLEN', RESERVATION) == 0 then return end
  local found = call('HMGET', RESERVATION, unpack(fields))
  for i, change in ipairs(places) do change.reserved = found[i] end
end

-- the present value of each change's object; one read for each hash, which checks its type
local function read(changes)
  local fields, places = {}, {}
  for i, change in ipairs(changes) do
    local hash = change.hash
    if not fields[hash] then fields[hash], places[hash] = {}, {} end
    table.insert(fields[hash], change.field)
    table.insert(places[hash], i)
  end
  for hash, names in pairs(fields) do
    local found = call('HMGET', hash, unpack(names))
    for j, i in ipairs(places[hash]) do changes[i].stored = found[j] end
  end
end

-- version of the tombstone that stands for a name, or nil; graves counts all, so that most calls read nothing
local function buried(name, graves, expired)
  if graves == 0 then return nil end
  local found = call('HGET', TOMBSTONE, name)
  if not found then return nil end
  local at, version = string.match(found, '^(%d+) (%d*) ')
  if not at or tonumber(at) <= expired then return nil end
  return version
end

-- outcome of a put, and the mark of its log entry
local function judge_put(change, force, graves, expired)
  local new, digest = header(change.value)
  local stored = change.stored
  if not stored then
    local late = new ~= '' and not force and buried(change.name, graves, expired)
    if late and not older(late, new) then return 'S' end
    return 'C', '='
  end
  if stored == change.value and not change.lifetime then return '=' end
  local old, before = header(stored)
  if not old then return 'U', '=' end
  if not force and new ~= '' and old ~= '' and older(new, old) then return 'S' end
  return 'U', digest == before and '~' or '='
end

-- outcome of a removal, and whether it leaves a tombstone
local function judge_remove(change, force, graves, expired)
  local grave = change.upto ~= '' and change.hash ~= RESERVATION
  if not change.stored then
    local late = grave and buried(change.name, graves, expired)
    return 'N', grave and not (late and not older(late, change.upto))
  end
  local old, _, uid = header(change.stored)
  if change.uid ~= '' and change.uid ~= (uid or '') then return 'N', false end
  if not force and change.upto ~= '' and old and old ~= '' and older(change.upto, old) then return 'S', false end
  return 'D', grave
end

-- whether a change with this outcome ends what is reserved for its pod
local function ends(change, outcome)
  if not change.reserved or outcome == 'S' then return false end
  local uid = change.uid or ''
  if change.put then
    local _, _, own = header(change.value)
    uid = own
  elseif uid == '' and change.stored then
    local _, _, own = header(change.stored)
    uid = own or ''
  end
  local _, _, reserved = header(change.reserved)
  return uid == '' or not reserved or reserved == '' or reserved == uid
end

local function add(list, hash, ...)
  if not list[hash] then list[hash] = {} end
  for _, word in ipairs({...}) do table.insert(list[hash], word) end
end

local function end_reservation(todo, field, stored)
  table.insert(todo.ended, field)
  todo.handled[field] = true
  table.insert(todo.entry, '-7/' .. field)
  table.insert(todo.entry, front(stored))
  todo.scopes[scope('7/' .. field)] = true
  add(todo.del, RESERVATION, field)
  table.insert(todo.undate, field)
end

-- reservations that are due and not dealt with by the changes, in the order of their names
local function end_due(todo, now)
  local due = {}
  for _, field in ipairs(call('ZRANGEBYSCORE', EXPIRY, '-inf', now, 'LIMIT', 0, MAX_PURGED)) do
    if not todo.handled[field] then table.insert(due, field) end
  end
  if #due == 0 then return end
  table.sort(due)
  local found = call('HMGET', RESERVATION, unpack(due))
  for i, field in ipairs(due) do
    if found[i] then end_reservation(todo, field, found[i]) else table.insert(todo.undate, field) end
  end
end

-- what a transaction will write
local function judge(changes, force, graves, now, expired)
  local todo = {
    outcomes = {}, entry = {}, set = {}, del = {}, scopes = {}, bury = {}, dig = {},
    ended = {}, handled = {}, date = {}, undate = {}, undo = {}, list = {}, unlist = {},
  }
  for i, change in ipairs(changes) do
    local outcome, mark, grave
    if change.put then
      outcome, mark = judge_put(change, force, graves, expired)
    else
      outcome, grave = judge_remove(change, force, graves, expired)
      if outcome == 'D' then mark = '-' end
    end
    todo.outcomes[i] = outcome
    if grave then
      table.insert(todo.bury, {change.name, string.format('%.0f %s %s', now, change.upto, change.uid)})
    end
    if mark then
      table.insert(todo.entry, mark .. change.name)
      table.insert(todo.entry, change.value or front(change.stored))
      if mark ~= '~' then todo.scopes[scope(change.name)] = true end
      local member = listed(change.name)
      if member then
        table.insert(todo.undo, change.name)
        table.insert(todo.undo, change.stored or '')
        if not change.put then
          table.insert(todo.unlist, member)
        elseif not change.stored then
          table.insert(todo.list, 0)
          table.insert(todo.list, member)
        end
      end
      if change.put then
        add(todo.set, change.hash, change.field, change.value)
        if graves > 0 and not change.stored then table.insert(todo.dig, change.name) end
      else
        add(todo.del, change.hash, change.field)
      end
      if change.hash == RESERVATION then
        if (change.due or 0) > 0 then
          table.insert(todo.date, change.due)
          table.insert(todo.date, change.field)
        else
          table.insert(todo.undate, change.field)
        end
      end
    end
    if change.hash == RESERVATION then todo.handled[change.field] = true end
    if ends(change, outcome) then end_reservation(todo, change.field, change.reserved) end
  end
  return todo
end

local function dig(names)
  if #names == 0 then return end
  call('HDEL', TOMBSTONE, unpack(names))
  call('ZREM', BURIED, unpack(names))
end

local function bury(todo, graves, now, expired)
  dig(todo.dig)
  if #todo.bury == 0 then return end
  for _, grave in ipairs(todo.bury) do
    call('HSET', TOMBSTONE, grave[1], grave[2])
    call('ZADD', BURIED, now, grave[1])
  end
  -- A thousand at a time: more are made in one call only by calls of that size.
  dig(call('ZRANGEBYSCORE', BURIED, '-inf', expired, 'LIMIT', 0, 1000))
  local over = call('ZCARD', BURIED) - tonumber(ARGV[9])
  if over > 0 then dig(call('ZRANGE', BURIED, 0, math.min(over, 1000) - 1)) end
end

-- the rule of rules.trimmed
local function trim(cluster, number, total)
  local limit = tonumber(ARGV[7])
  local grain = math.max(1, math.floor(limit / GRAINS))
  if math.floor(cluster.total / grain) == math.floor(total / grain) then return end
  local kept, last, undone = {}, nil, nil
  for n, t in string.gmatch(call('HGET', META, 'marks') or '', '(%d+):(%d+)') do
    if tonumber(t) <= total - math.floor(limit / UNDO_SHARE) then undone = n end
    if tonumber(t) <= total - limit then last = n else table.insert(kept, n .. ':' .. t) end
  end
  table.insert(kept, number .. ':' .. string.format('%.0f', total))
  call('HSET', META, 'marks', table.concat(kept, ' '))
  if undone then call('XTRIM', UNDO, 'MINID', successor(undone) .. '-0') end
  if not last then return end
  local oldest = successor(last)
  call('HSET', META, 'oldest', oldest)
  call('XTRIM', LOG, 'MINID', oldest .. '-0')
  -- No precondition can name a revision that old any more.
  local touched, gone = call('HGETALL', TOUCHED), {}
  for i = 1, #touched, 2 do
    if older(touched[i + 1], oldest) then table.insert(gone, touched[i]) end
  end
  for i = 1, #gone, 1000 do
    call('HDEL', TOUCHED, unpack(gone, i, math.min(i + 999, #gone)))
  end
end

-- whether the names are those of the objects: an older version writes none, and keys may be evicted
local function is_listed(cluster)
  return cluster.listed == cluster.number .. ' ' .. call('ZCARD', NAMES)
end

-- A new cluster has nothing to list, but where objects are left of one that lost its meta.
local function begin_names(cluster)
  call('UNLINK', NAMES, UNDO)
  for i, key in ipairs({NODE, POD, WORKLOAD}) do
    if call('HLEN', key) > 0 then return end
  end
  cluster.listed = cluster.number .. ' 0'
  call('HSET', META, 'listed', cluster.listed)
end

local function list_all(cluster)
  call('UNLINK', NAMES)
  for hash, prefix in pairs({[NODE] = '1//', [POD] = '2/', [WORKLOAD] = ''}) do
    local members = {}
    for _, field in ipairs(call('HKEYS', hash)) do
      local member = listed(prefix .. field)
      if member then
        table.insert(members, 0)
        table.insert(members, member)
      end
    end
    for i = 1, #members, 1000 do
      call('ZADD', NAMES, unpack(members, i, math.min(i + 999, #members)))
    end
  end
  call('HSET', META, 'listed', cluster.number .. ' ' .. call('ZCARD', NAMES))
end

local function create(cluster)
  call('HSET', META, 'format', ARGV[2], 'identity', ARGV[3], 'oldest', cluster.oldest, 'number',
    cluster.number, 'tag', cluster.tag)
  call('PERSIST', META)
  call('PERSIST', FEEDER)
end

local function write(cluster, todo)
  local number, tag = successor(cluster.number), ARGV[5]
  call('XADD', LOG, number .. '-0', 't', tag, 'p', cluster.tag, unpack(todo.entry))
  if cluster.identity == '' then begin_names(cluster) end
  local lists = is_listed(cluster)
  for hash, pairs_of in pairs(todo.set) do call('HSET', hash, unpack(pairs_of)) end
  for hash, fields in pairs(todo.del) do call('HDEL', hash, unpack(fields)) end
  -- Refused only where somebody set it further than the log: lists are to begin anew then, and the write is whole.
  if redis.pcall('XADD', UNDO, number .. '-0', 't', tag, unpack(todo.undo)).err then call('UNLINK', UNDO) end
  if lists and #todo.list > 0 then call('ZADD', NAMES, unpack(todo.list)) end
  if lists and #todo.unlist > 0 then call('ZREM', NAMES, unpack(todo.unlist)) end
  if #todo.undate > 0 then call('ZREM', EXPIRY, unpack(todo.undate)) end
  if #todo.date > 0 then call('ZADD', EXPIRY, unpack(todo.date)) end
  local touched = {}
  for name in pairs(todo.scopes) do
    table.insert(touched, name)
    table.insert(touched, number)
  end
  if #touched > 0 then call('HSET', TOUCHED, unpack(touched)) end
  local total = cluster.total + #todo.entry / 2
  if cluster.identity == '' then create(cluster) end
  trim(cluster, number, total)
  call('HSET', META, 'number', number, 'tag', tag, 'total', string.format('%.0f', total),
    'counts', number .. ' ' .. counts())
  if lists then call('HSET', META, 'listed', number .. ' ' .. call('ZCARD', NAMES)) end
  return number, tag
end

-- From Redis 8 on, WAIT is for what its connection wrote, and for nothing after a call that wrote nothing: whoever
-- repeats a call that replicas did not confirm would be told that they have it.
local function rewrite(field, value)
  call('HSET', META, field, value)
end

local function apply()
  local cluster, refusal = load()
  if not cluster then return refusal end
  refusal = vanished(cluster)
  if refusal then return refusal end
  if ARGV[12] ~= '' and call('HGET', FEEDER, 'fence') ~= ARGV[12] then
    return {'FENCED', call('HGET', FEEDER, 'holder') or ''}
  end
  if ARGV[4] ~= '' and ARGV[4] ~= cluster.identity then return {'IDENTITY', cluster.identity} end
  local scopes = {}
  for i = 1, tonumber(ARGV[13]) do scopes[i] = ARGV[13 + i] end
  if ARGV[10] ~= '' then
    refusal = changed(cluster, scopes)
    if refusal then return refusal end
  end
  local changes, removes, lifetimes = parse(14 + #scopes)
  read(changes)
  read_reserved(changes)
  -- These read little, and fail on a wrong type before anything is written.
  for _, stream in ipairs({LOG, UNDO}) do call('XLEN', stream) end
  call('ZCARD', NAMES)
  local graves, dated, now, expired = call('HLEN', TOMBSTONE), call('ZCARD', EXPIRY), 0, 0
  local timed = lifetimes or (ARGV[1] == 'purge' and cluster.identity ~= '')
  if graves > 0 or removes or dated > 0 or timed then
    call('ZCARD', BURIED)
    now = milliseconds()
    expired = now - tonumber(ARGV[8])
  end
  date(changes, now)
  local todo = judge(changes, ARGV[6] == '1', graves, now, expired)
  if dated > 0 and (#todo.entry > 0 or ARGV[1] == 'purge') then end_due(todo, now) end
  local number, tag, identity = cluster.number, cluster.tag, cluster.identity
  if #todo.entry > 0 then
    number, tag = write(cluster, todo)
    if identity == '' then identity = ARGV[3] end
  elseif ARGV[1] == 'apply' and #changes == 0 and identity == '' then
    begin_names(cluster)
    create(cluster)
    identity = ARGV[3]
  elseif ARGV[1] == 'apply' and identity ~= '' then
    rewrite('number', number)
  end
  if number ~= cluster.number or cluster.identity ~= '' then bury(todo, graves, now, expired) end
  return {
    'OK', number, tag, cluster.number, cluster.tag, table.concat(todo.outcomes),
    timed and string.format('%.0f', now) or '0', identity, unpack(todo.ended),
  }
end

-- the dropped identities, with one more in front; meta holds those so far, and since when
local function dropped_with(identity, before, at, now)
  local kept = {identity}
  if before and now - (tonumber(at) or 0) < tonumber(ARGV[4]) then
    for other in string.gmatch(before, '%S+') do
      if other ~= identity and #kept < tonumber(ARGV[3]) then table.insert(kept, other) end
    end
  end
  return table.concat(kept, ' ')
end

-- No token from before is good any more; the clock has passed it when this is forgotten.
local function void_lease(found)
  if not found then return call('UNLINK', FEEDER) end
  local fence = tonumber(call('HGET', FEEDER, 'fence') or '0') + 1
  call('HSET', FEEDER, 'holder', '', 'fence', string.format('%.0f', fence), 'until', '0')
  call('PEXPIRE', FEEDER, ARGV[4])
end

local function drop()
  local function has(key, kind) return call('TYPE', key).ok == kind end
  local meta = has(META, 'hash') and call('HMGET', META, 'format', 'identity', 'dropped', 'dropped_at')
  if meta and meta[1] and meta[1] ~= ARGV[2] then return {'FORMAT', meta[1]} end
  local identity = meta and meta[2] or ''
  if ARGV[5] ~= '' and ARGV[5] ~= identity then return {'IDENTITY', identity} end
  local count = 0
  -- How far the API server was read is no object.
  if has(WORKLOAD, 'hash') then
    for kind = 1, 9 do call('HDEL', WORKLOAD, '8//' .. kind) end
  end
  for _, hash in ipairs({NODE, POD, WORKLOAD, RESERVATION}) do
    if has(hash, 'hash') then count = count + call('HLEN', hash) end
  end
  call('UNLINK', NODE, POD, WORKLOAD, RESERVATION, LOG, TOUCHED, TOMBSTONE, BURIED, EXPIRY, NAMES, UNDO)
  void_lease(has(FEEDER, 'hash'))
  if meta and not meta[2] then
    rewrite('format', ARGV[2])
    return {'OK', count, ''}
  end
  call('UNLINK', META)
  if not meta then return {'OK', count, ''} end
  local now = milliseconds()
  call('HSET', META, 'format', ARGV[2], 'dropped', dropped_with(meta[2], meta[3], meta[4], now),
    'dropped_at', string.format('%.0f', now))
  call('PEXPIRE', META, ARGV[4])
  return {'OK', count, identity}
end

local function vouch()
  local cluster, refusal = load()
  if not cluster then return refusal end
  if ARGV[5] ~= '' and ARGV[5] ~= cluster.identity then return {'IDENTITY', cluster.identity} end
  local meta, now = call('HMGET', META, 'vouched', 'dropped', 'dropped_at'), milliseconds()
  local times, vouched = {}, {}
  for kind, at in string.gmatch(meta[1] or '', '(%d+):(%d+)') do times[kind] = at end
  for i = 7, #ARGV do
    times[ARGV[i]] = string.format('%.0f', math.max(now, tonumber(times[ARGV[i]] or '0') + 1))
  end
  for kind, at in pairs(times) do table.insert(vouched, kind .. ':' .. at) end
  local words = {'format', ARGV[2], 'vouched', table.concat(vouched, ' ')}
  if ARGV[6] ~= '' then
    words[5], words[6] = 'dropped', dropped_with(ARGV[6], meta[2], meta[3], now)
    words[7], words[8] = 'dropped_at', string.format('%.0f', now)
  end
  call('HSET', META, unpack(words))
  if cluster.identity == '' then call('PEXPIRE', META, ARGV[4]) end
  return {'OK'}
end

-- the rule of rules.granted
local function lease()
  local format = call('HGET', META, 'format')
  if format and format ~= ARGV[2] then return {'FORMAT', format} end
  local found, now = call('HMGET', FEEDER, 'holder', 'fence', 'until', 'granted_for'), milliseconds()
  local holder, lifetime = ARGV[3], tonumber(ARGV[4])
  local fence, ends = tonumber(found[2] or '0'), tonumber(found[3] or '0')
  local lost = ARGV[5] ~= '' and (found[1] ~= holder or found[2] ~= ARGV[5] or ends <= now)
  if lost or (found[1] ~= holder and (lifetime == 0 or ends > now)) then
    local granted_for = tonumber(found[4] or '0')
    local left = math.min(math.max(0, ends - now), granted_for == 0 and MAX_LEASE or granted_for)
    local till = string.format('%.0f', now + left)
    if now + left < ends then call('HSET', FEEDER, 'until', till) end
    return {'OK', found[1] or '', string.format('%.0f', fence), string.format('%.0f', left), found[4] or '0', till}
  end
  if found[1] ~= holder then fence = math.max(fence + 1, now) end
  local token, till = string.format('%.0f', fence), string.format('%.0f', now + lifetime)
  call('HSET', FEEDER, 'holder', holder, 'fence', token, 'until', till, 'granted_for', ARGV[4])
  if call('HEXISTS', META, 'identity') == 1 then
    call('PERSIST', FEEDER)
  else
    -- Without a cluster it is forgotten an hour after its end; the clock has passed its token then.
    call('PEXPIRE', FEEDER, string.format('%.0f', lifetime + MAX_LEASE))
  end
  return {'OK', holder, token, ARGV[4], ARGV[4], till}
end

-- the hash of a name as it is listed, and its field there
local function place_of(member)
  return place((string.gsub(member, '%z', '/', 2)))
end

-- objects in the order of their names, with their values as they are at this moment
local function range()
  local cluster, refusal = load()
  if not cluster then return refusal end
  if cluster.identity == '' then return {'RANGE', '0'} end
  refusal = vanished(cluster)
  if refusal then return refusal end
  if not is_listed(cluster) then list_all(cluster) end
  local names = call('ZRANGEBYLEX', NAMES, ARGV[3], ARGV[4], 'LIMIT', 0, ARGV[5])
  local found, size, most = {'RANGE', '0'}, 0, tonumber(ARGV[6])
  for first = 1, #names, BATCH do
    if size >= most then
      found[2] = '1'
      break
    end
    local fields, hash = {}, nil
    for i = first, math.min(first + BATCH - 1, #names) do
      hash, fields[i - first + 1] = place_of(names[i])
    end
    for i, value in ipairs(call('HMGET', hash, unpack(fields))) do
      if not value then return {'VANISHED', hash, cluster.counts or '', counts()} end
      table.insert(found, names[first + i - 1])
      table.insert(found, value)
      size = size + #value
    end
  end
  return found
end

local function probe()
  local denied = {}
  if not redis.acl_check_cmd then return denied end
  for _, words in ipairs({
    {'hmget', META, 'f'}, {'hget', META, 'f'}, {'hset', META, 'f', '1'}, {'hdel', TOUCHED, 'f'},
    {'hlen', NODE}, {'hgetall', TOUCHED}, {'hscan', POD, '0'}, {'exists', LOG}, {'type', META},
    {'persist', META}, {'pexpire', META, '1'}, {'unlink', NODE}, {'time'}, {'xlen', LOG},
    {'xadd', LOG, '1-0', 'f', '1'}, {'xtrim', LOG, 'MINID', '1'}, {'xinfo', 'STREAM', LOG},
    {'xrange', LOG, '-', '+'}, {'xrevrange', LOG, '+', '-'}, {'xread', 'STREAMS', LOG, '0'},
    {'zadd', BURIED, '1', 'm'}, {'zrem', BURIED, 'm'}, {'zcard', BURIED}, {'zrange', BURIED, '0', '1'},
    {'zrangebyscore', BURIED, '0', '1'}, {'zrangebylex', NAMES, '-', '+'}, {'hkeys', NODE}, {'scan', '0'}, {'ping'},
  }) do
    if not redis.acl_check_cmd(unpack(words)) then table.insert(denied, words[1]) end
  end
  return denied
end

if ARGV[1] == 'apply' or ARGV[1] == 'purge' then return apply() end
if ARGV[1] == 'drop' then return drop() end
if ARGV[1] == 'vouch' then return vouch() end
if ARGV[1] == 'lease' then return lease() end
if ARGV[1] == 'range' then return range() end
return probe()
