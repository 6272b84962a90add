-- Applies the changes of one transaction, lists objects, drops a cluster, gives its lease.
--
-- Redis does not undo a script that fails half-way. So everything is read and checked first (types, format,
-- identity, precondition, what becomes of each change), and the first write is the one that Redis may refuse
-- (no memory, read-only, no replicas, an id that is not newer): if it goes through, the rest does.
--
-- KEYS, all of one cluster C and in one hash slot; a name is kind/namespace/name
--    1  ts:{C}:meta       hash    format, identity, number and tag (of the newest transaction), total (changes logged),
--                                 marks ("number:total ...", where the log may be cut), listed and feed (kinds as bits,
--                                 see rules.with_listed), replaced ("identity ...", newest first) and replaced_at
--    2  ts:{C}:object     hash    name -> value; of a reservation with 13 digits before the payload: when it is due, in
--                                 milliseconds (0: never)
--    3  ts:{C}:names      zset    kind NUL namespace NUL name of all objects, in the order of bytes
--    4  ts:{C}:log        stream  <number>-0: t = tag, p = tag before it, then for each change its mark (= relevant,
--                                 ~ same digest, - deleted) and name, and the value, of a deleted one without payload
--    5  ts:{C}:touched    hash    scope -> number of its last relevant change
--    6  ts:{C}:tombstone  hash    name -> "milliseconds version"
--    7  ts:{C}:buried     zset    names of tombstones by milliseconds
--    8  ts:{C}:expiry     zset    names of reservations by when they are due
--    9  ts:{C}:lease      hash    holder, fence, until (milliseconds), and the milliseconds that it was granted_for
--
-- ARGV[1] = "apply", ARGV[2] = format, then
--    3  identity for a cluster that is not there yet        4  identity that it must have, or ""
--    5  tag of this transaction                             6  "1" to write older versions, too
--    7  changes that the log keeps                          8  milliseconds that tombstones last
--    9  tombstones that are kept                           10  number of the precondition's revision, or ""
--   11  tag of the precondition's revision                 12  fence that the cluster's lease must have, or ""
--   13  bit of the kind that was listed, or 0              14  bits of the kinds that its feed lists
--   15  front of the names of the kind listed          16  version of the list, or ""
--   17  how many scopes follow; then the scopes; then five words for each change:
--       "p", name, value, "", ""                           or "e" for "p": a pod that ends its reservation
--       "v", name, header, payload, milliseconds or ""     a reservation
--       "r", name, uid, up to version, ""
-- ARGV[1] = "scan", ARGV[2] = format, 3 and 4 = bounds of the names for ZRANGEBYLEX, 5 = names at most, 6 = bytes of
--    values after which it ends
-- ARGV[1] = "drop", ARGV[2] = format, 3 = identities remembered, 4 = milliseconds that they are remembered,
--    5 = identity that it must have, or ""
-- ARGV[1] = "lease", ARGV[2] = format, 3 = who asks, or "" to look only, 4 = milliseconds, 0 to give it back
-- ARGV[1] = "probe": what the user may not run, of the commands used here
--
-- A value begins with: length of the version, version, 8 bytes of digest, length of the uid, uid. Versions are decimal
-- strings: a Lua number is exact up to 2^53 only, which no transaction number reaches. The rules for one change, for
-- the lease and for the log's end are stated in rules.py as well.
--
-- Answers: {"OK", number, tag, number before, tag before, one letter for each change, milliseconds that lifetimes are
-- counted from, identity, name of each reservation that ended without being among the changes ...} for apply,
-- {"OK", last name or "" when there are no more, name, value ...} for scan, {"OK", count, identity or ""} for drop,
-- {"OK", holder, fence, milliseconds left, milliseconds that it was granted for, when it ends} for lease,
-- {"FENCED", holder}, {"FORMAT", found}, {"IDENTITY", found}, {"TRIMMED"}, {"DIVERGED"}, {"CONFLICT", scope, number},
-- {"UNREADABLE", what, what stands there}: what is noted is none of ours.

local META, OBJECT, NAMES, LOG, TOUCHED, TOMBSTONE, BURIED, EXPIRY, LEASE = unpack(KEYS)
local OBJECTS = {unpack(KEYS, 2, 8)}
local POD, RESERVATION, PROGRESS = '2', '7', '8'
-- the rule of SCOPES in model.py
local SCOPES = {['1'] = 'nodes/', ['16'] = 'namespaces/', ['20'] = 'jobs/'}
for kind = 9, 15 do SCOPES[string.format('%d', kind)] = 'volumes/' end
for kind = 17, 19 do SCOPES[string.format('%d', kind)] = 'devices/' end
local GRAINS, MAX_ENDED, MAX_LEASE = 64, 100, 3600000
local call = redis.call
local push = table.insert

-- milliseconds since 1970; in apply also whether to write older versions, the count of tombstones, and when those that
-- count no more were made at the latest
local now, force, graves, expired

local function text(number)
  return string.format('%.0f', number)
end

local function older(left, right)
  return #left < #right or (#left == #right and left < right)
end

-- version, digest and uid of a value, and where its payload begins; nil when it cannot be read
local function header(value)
  local v = string.byte(value, 1)
  if not v or #value < v + 10 then return nil end
  local u = string.byte(value, v + 10)
  if #value < v + 10 + u then return nil end
  local version = string.sub(value, 2, v + 1)
  if string.find(version, '[^0-9]') then return nil end
  return version, string.sub(value, v + 2, v + 9), string.sub(value, v + 11, v + 10 + u), v + 11 + u
end

-- what stands before the payload of a value, or nothing when it cannot be read
local function front(value)
  local _, _, _, payload = header(value)
  return string.sub(value, 1, (payload or 1) - 1)
end

local function kind_of(name)
  return string.match(name, '^%d+')
end

local function scope(name)
  return SCOPES[kind_of(name)] or string.match(name, '^%d+/([^/]*)/')
end

-- an object among the names of all
local function member(name)
  return (string.gsub(name, '/', '\0', 2))
end

local function load()
  local fields, cluster = {'identity', 'tag', 'number', 'total', 'listed', 'feed'}, {}
  local found = call('HMGET', META, unpack(fields))
  for i, field in ipairs(fields) do
    local pattern = i > 2 and '^%d+$' or '^%w*$'
    if found[i] and not (string.find(found[i], pattern) and (i < 3 or #found[i] < 16)) then
      return nil, {'UNREADABLE', field, found[i]}
    end
    cluster[field] = i > 2 and tonumber(found[i] or 0) or found[i] or ''
  end
  return cluster
end

-- values of objects in the order of their names, until they hold so many bytes
local function scan()
  local limit, left, answer = tonumber(ARGV[5]), tonumber(ARGV[6]), {'OK', ''}
  for i, name in ipairs(call('ZRANGEBYLEX', NAMES, ARGV[3], ARGV[4], 'LIMIT', 0, limit)) do
    local value = call('HGET', OBJECT, (string.gsub(name, '%z', '/')))
    if not value then return {'UNREADABLE', 'an object that it lost', name} end
    push(answer, name)
    push(answer, value)
    left = left - #value
    if i == limit or left <= 0 then answer[2] = name end
    if left <= 0 then return answer end
  end
  return answer
end

-- why the precondition does not hold, or nil
local function changed(cluster)
  local number, tag, scopes = tonumber(ARGV[10]), cluster.tag, {unpack(ARGV, 18, 17 + tonumber(ARGV[17]))}
  if number > cluster.number then return {'DIVERGED'} end
  if number < cluster.number then
    local id = text(number + 1) .. '-0'
    local entry = call('XRANGE', LOG, id, id)[1]
    if not entry then return {'TRIMMED'} end
    tag = entry[2][4]
  end
  if ARGV[11] ~= tag then return {'DIVERGED'} end
  if #scopes == 0 then return nil end
  for i, last in ipairs(call('HMGET', TOUCHED, unpack(scopes))) do
    local at = tonumber(last or 0)
    if not at or at > cluster.number then return {'UNREADABLE', 'the last change of ' .. scopes[i], last} end
    if at > number then return {'CONFLICT', scopes[i], last} end
  end
  return nil
end

local function parse(at)
  local changes = {}
  for i = at, #ARGV, 5 do
    local word, name, first, second, third = unpack(ARGV, i, i + 4)
    local change = {name = name, kind = kind_of(name)}
    if word == 'r' then
      change.uid, change.upto, change.ends = first, second, change.kind == POD
    elseif word == 'v' then
      change.renews = third ~= ''
      change.due = change.renews and now + tonumber(third) or 0
      change.value = first .. string.format('%013.0f', change.due) .. second
    else
      change.value, change.ends = first, word == 'e'
    end
    push(changes, change)
  end
  return changes
end

-- the present value of each change's object, and of what is reserved for a pod whose change may end it
local function read(changes)
  if #changes == 0 then return end
  local names = {}
  for i, change in ipairs(changes) do names[i] = change.name end
  for _, change in ipairs(changes) do
    if change.ends then
      change.reservation = RESERVATION .. string.sub(change.name, 2)
      push(names, change.reservation)
      change.place = #names
    end
  end
  local found = call('HMGET', OBJECT, unpack(names))
  for i, change in ipairs(changes) do
    change.stored, change.reserved = found[i], change.place and found[change.place]
  end
end

-- version of the tombstone that stands for a name, or nil
local function buried(name)
  if graves == 0 then return nil end
  local at, version = string.match(call('HGET', TOMBSTONE, name) or '', '^(%d+) (%d*)$')
  if not at or tonumber(at) <= expired then return nil end
  return version
end

-- outcome of a put, and the mark of its log entry
local function judge_put(change)
  local new, digest = header(change.value)
  local stored = change.stored
  if not stored then
    local late = new ~= '' and not force and buried(change.name)
    if late and not older(late, new) then return 'S' end
    return 'C', '='
  end
  if stored == change.value and not change.renews then return '=' end
  local old, before = header(stored)
  if not old then return 'U', '=' end
  if not force and new ~= '' and old ~= '' and older(new, old) then return 'S' end
  return 'U', digest == before and '~' or '='
end

-- outcome of a removal, and whether it leaves a tombstone
local function judge_remove(change)
  local grave = change.upto ~= '' and change.kind ~= RESERVATION
  if not change.stored then
    local late = grave and buried(change.name)
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
  if uid == '' and (change.value or change.stored) then
    local _, _, own = header(change.value or change.stored)
    uid = own or ''
  end
  local _, _, reserved = header(change.reserved)
  return uid == '' or not reserved or reserved == '' or reserved == uid
end

local function note(todo, mark, name, value)
  push(todo.entry, mark .. name)
  push(todo.entry, value)
  if mark ~= '~' then todo.scopes[scope(name)] = true end
end

local function put(todo, change, mark)
  note(todo, mark, change.name, change.value)
  push(todo.set, change.name)
  push(todo.set, change.value)
  if not change.stored then
    push(todo.list, 0)
    push(todo.list, member(change.name))
    if graves > 0 then push(todo.dig, change.name) end
  end
  if change.due == 0 then
    push(todo.undate, change.name)
  elseif change.due then
    push(todo.date, change.due)
    push(todo.date, change.name)
  end
end

local function remove(todo, name, stored)
  note(todo, '-', name, front(stored))
  push(todo.del, name)
  push(todo.unlist, member(name))
  if kind_of(name) == RESERVATION then push(todo.undate, name) end
end

local function end_reservation(todo, name, stored)
  remove(todo, name, stored)
  push(todo.ended, name)
  todo.handled[name] = true
end

-- what a transaction will write
local function judge(changes)
  local todo = {
    outcomes = {}, entry = {}, scopes = {}, set = {}, del = {}, list = {}, unlist = {}, date = {}, undate = {},
    bury = {}, dig = {}, ended = {}, handled = {},
  }
  for i, change in ipairs(changes) do
    local outcome, mark, grave
    if change.value then
      outcome, mark = judge_put(change)
      if mark then put(todo, change, mark) end
    else
      outcome, grave = judge_remove(change)
      if outcome == 'D' then remove(todo, change.name, change.stored) end
      if grave then push(todo.bury, change) end
    end
    todo.outcomes[i] = outcome
    todo.handled[change.name] = true
    if ends(change, outcome) then end_reservation(todo, change.reservation, change.reserved) end
  end
  return todo
end

-- reservations that are due and not dealt with by the changes, in the order of their names
local function end_due(todo)
  local due = {}
  for _, name in ipairs(call('ZRANGEBYSCORE', EXPIRY, '-inf', now, 'LIMIT', 0, MAX_ENDED)) do
    if not todo.handled[name] then push(due, name) end
  end
  if #due == 0 then return end
  table.sort(due)
  local found = call('HMGET', OBJECT, unpack(due))
  for i, name in ipairs(due) do
    if found[i] then end_reservation(todo, name, found[i]) else push(todo.undate, name) end
  end
end

local function dig(names)
  if #names == 0 then return end
  call('HDEL', TOMBSTONE, unpack(names))
  call('ZREM', BURIED, unpack(names))
end

-- forget what a list does not know of, a thousand at a time
local function exhume()
  local front, upto, names = ARGV[15], ARGV[16], {}
  for _, name in ipairs(call('ZRANGE', BURIED, 0, -1)) do
    if string.sub(name, 1, #front) == front then push(names, name) end
  end
  for i = 1, #names, 1000 do
    local some = {unpack(names, i, math.min(i + 999, #names))}
    local newer = {}
    for j, grave in ipairs(call('HMGET', TOMBSTONE, unpack(some))) do
      if older(upto, string.match(grave or '', '^%d+ (%d*)$') or '') then push(newer, some[j]) end
    end
    dig(newer)
  end
end

local function bury(todo)
  dig(todo.dig)
  if #todo.bury == 0 then return end
  for _, change in ipairs(todo.bury) do
    call('HSET', TOMBSTONE, change.name, text(now) .. ' ' .. change.upto)
    call('ZADD', BURIED, now, change.name)
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
  local kept, last = {}, nil
  for n, t in string.gmatch(call('HGET', META, 'marks') or '', '(%d+):(%d+)') do
    if tonumber(t) <= total - limit then last = tonumber(n) else push(kept, n .. ':' .. t) end
  end
  push(kept, text(number) .. ':' .. text(total))
  call('HSET', META, 'marks', table.concat(kept, ' '))
  if not last then return end
  call('XTRIM', LOG, 'MINID', text(last + 1) .. '-0')
  -- No precondition can name a revision that old any more.
  local touched = call('HGETALL', TOUCHED)
  for i = 1, #touched, 2 do
    if (tonumber(touched[i + 1]) or 0) <= last then call('HDEL', TOUCHED, touched[i]) end
  end
end

local function create(cluster)
  cluster.identity = ARGV[3]
  call('HSET', META, 'format', ARGV[2], 'identity', ARGV[3], 'number', 0, 'tag', '', 'total', 0)
  call('PERSIST', META)
  call('PERSIST', LEASE)
end

local function write(cluster, todo)
  local number, tag = cluster.number + 1, ARGV[5]
  call('XADD', LOG, text(number) .. '-0', 't', tag, 'p', cluster.tag, unpack(todo.entry))
  if #todo.set > 0 then call('HSET', OBJECT, unpack(todo.set)) end
  if #todo.del > 0 then call('HDEL', OBJECT, unpack(todo.del)) end
  if #todo.list > 0 then call('ZADD', NAMES, unpack(todo.list)) end
  if #todo.unlist > 0 then call('ZREM', NAMES, unpack(todo.unlist)) end
  if #todo.undate > 0 then call('ZREM', EXPIRY, unpack(todo.undate)) end
  if #todo.date > 0 then call('ZADD', EXPIRY, unpack(todo.date)) end
  for name in pairs(todo.scopes) do call('HSET', TOUCHED, name, text(number)) end
  if cluster.identity == '' then create(cluster) end
  local total = cluster.total + #todo.entry / 2
  trim(cluster, number, total)
  call('HSET', META, 'number', text(number), 'tag', tag, 'total', text(total))
  return number, tag
end

-- refusal of a write before its changes are looked at, or nil
local function refused(cluster)
  if ARGV[12] ~= '' and call('HGET', LEASE, 'fence') ~= ARGV[12] then
    return {'FENCED', call('HGET', LEASE, 'holder') or ''}
  end
  if ARGV[4] ~= '' and ARGV[4] ~= cluster.identity then return {'IDENTITY', cluster.identity} end
  return ARGV[10] ~= '' and changed(cluster)
end

local function apply()
  local cluster, refusal = load()
  refusal = refusal or refused(cluster)
  if refusal then return refusal end
  -- What is left of a cluster that lost its meta is no cluster's.
  if cluster.identity == '' and call('EXISTS', unpack(OBJECTS)) > 0 then call('UNLINK', unpack(OBJECTS)) end
  force, graves, expired = ARGV[6] == '1', call('HLEN', TOMBSTONE), now - tonumber(ARGV[8])
  local changes = parse(18 + tonumber(ARGV[17]))
  read(changes)
  -- These read little, and fail on a wrong type before anything is written.
  call('XLEN', LOG)
  for _, hash in ipairs({OBJECT, TOUCHED}) do call('HLEN', hash) end
  for _, zset in ipairs({NAMES, BURIED}) do call('ZCARD', zset) end
  local todo = judge(changes)
  if call('ZCARD', EXPIRY) > 0 then end_due(todo) end
  local number, tag = cluster.number, cluster.tag
  if #todo.entry > 0 then
    number, tag = write(cluster, todo)
  elseif cluster.identity ~= '' then
    -- From Redis 8 on, WAIT is for what its connection wrote, and for nothing after a call that wrote nothing: whoever
    -- repeats a call that replicas did not confirm would be told that they have it.
    call('HSET', META, 'number', text(number))
  elseif #changes == 0 and ARGV[4] == '' then
    create(cluster)
  end
  if cluster.identity ~= '' then
    if ARGV[16] ~= '' and graves > 0 then exhume() end
    bury(todo)
    if ARGV[13] ~= '0' then
      local listed, feed = bit.bor(cluster.listed, tonumber(ARGV[13])), bit.bor(cluster.feed, tonumber(ARGV[14]))
      call('HSET', META, 'listed', listed, 'feed', feed)
    end
  end
  return {
    'OK', text(number), tag, text(cluster.number), cluster.tag, table.concat(todo.outcomes), text(now),
    cluster.identity, unpack(todo.ended),
  }
end

local function drop()
  local function has(key, kind) return call('TYPE', key).ok == kind end
  local meta = has(META, 'hash') and call('HMGET', META, 'identity', 'replaced', 'replaced_at') or {}
  local identity, at = meta[1] or '', tonumber(meta[3] or '') or 0
  if ARGV[5] ~= '' and ARGV[5] ~= identity then return {'IDENTITY', identity} end
  -- How far the API server was read is no object.
  local read = '[' .. PROGRESS
  local count = has(NAMES, 'zset') and call('ZCARD', NAMES) - call('ZLEXCOUNT', NAMES, read .. '\0', read .. '\1') or 0
  -- No token from before is good any more; the clock has passed it when this is forgotten.
  local fence = has(LEASE, 'hash') and (tonumber(call('HGET', LEASE, 'fence') or '') or 0) + 1
  call('UNLINK', unpack(KEYS))
  if fence then
    call('HSET', LEASE, 'holder', '', 'fence', text(fence), 'until', 0)
    call('PEXPIRE', LEASE, ARGV[4])
  end
  local kept = {identity ~= '' and identity or nil}
  if now - at < tonumber(ARGV[4]) then
    for other in string.gmatch(meta[2] or '', '%S+') do
      if other ~= identity and #kept < tonumber(ARGV[3]) then push(kept, other) end
    end
  end
  if identity ~= '' then at = now end
  call('HSET', META, 'format', ARGV[2], 'replaced', table.concat(kept, ' '), 'replaced_at', text(at))
  call('PEXPIRE', META, ARGV[4])
  return {'OK', count, identity}
end

-- the rule of rules.granted
local function lease()
  local found = call('HMGET', LEASE, 'holder', 'fence', 'until', 'granted_for')
  local holder, lifetime = ARGV[3], tonumber(ARGV[4])
  local fence, ends_at, granted_for = tonumber(found[2] or 0), tonumber(found[3] or 0), tonumber(found[4] or 0)
  if holder == '' or (found[1] ~= holder and (lifetime == 0 or ends_at > now)) then
    local left = math.min(math.max(0, ends_at - now), granted_for > 0 and granted_for or MAX_LEASE)
    if holder ~= '' and now + left < ends_at then call('HSET', LEASE, 'until', text(now + left)) end
    return {'OK', found[1] or '', text(fence), text(left), text(granted_for), text(now + left)}
  end
  if found[1] ~= holder then fence = math.max(fence + 1, now) end
  local token, till = text(fence), text(now + lifetime)
  call('HSET', LEASE, 'holder', holder, 'fence', token, 'until', till, 'granted_for', ARGV[4])
  if call('HEXISTS', META, 'identity') == 1 then
    call('PERSIST', LEASE)
  else
    -- Without a cluster it is forgotten an hour after its end; the clock has passed its token then.
    call('PEXPIRE', LEASE, text(lifetime + MAX_LEASE))
  end
  return {'OK', holder, token, ARGV[4], ARGV[4], till}
end

-- commands that the user may not run; Redis 6.2 cannot tell
local function probe()
  local denied, may = {}, redis.acl_check_cmd or function() return true end
  local used = 'exists hdel hexists hget hgetall hlen hmget hset persist pexpire ping scan time type unlink xadd ' ..
    'xlen xrange xread xtrim zadd zcard zlexcount zrange zrangebylex zrangebyscore zrem'
  for command in string.gmatch(used, '%a+') do
    if not may(command, META) then push(denied, command) end
  end
  return denied
end

if ARGV[1] == 'probe' then return probe() end
local format = call('TYPE', META).ok == 'hash' and call('HGET', META, 'format')
if format and format ~= ARGV[2] then return {'FORMAT', format} end
local time = call('TIME')
now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
return ({scan = scan, apply = apply, drop = drop, lease = lease})[ARGV[1]]()
