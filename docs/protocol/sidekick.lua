-- Dissects the Sidekick protocol, version 1, in Wireshark and tshark (4.0 and later).
--
-- Copy this file into the folder that Help > About Wireshark > Folders names "Personal Lua
-- Plugins", or try it with
--     tshark -X lua_script:sidekick.lua -r capture.pcapng -Y sidekick
--
-- It dissects datagrams at the proxy's port, UDP 5252. Use Decode As for a proxy at another port.
-- Markers and answers travel among the packets of a flow. It recognises them at any port, by their
-- first byte and the magic behind it.
--
-- It opens sealed messages if the preference sidekick.keylog names a key log
-- (tshark: -o sidekick.keylog:FILE). It reads the key log when a capture is opened. The key log is
-- a text with one line for each session and direction, of three words:
--     session    the number in front of the sealed datagrams, 8 hexadecimal digits
--     direction  the side that seals with the key: sender or proxy
--     key        32 bytes, 64 hexadecimal digits
-- Each receiver chooses its own numbers, so they may repeat. The dissector tries each key of a
-- number, and the tag decides. It ignores empty lines, and lines that begin with #.
--
-- sidekick.error names what is wrong with a datagram, as the protocol's test vectors do.

local VERSION, PORT = 1, 5252
local MAGIC_AT, MAGIC = 21, "Sidekick"
local MARKER, ANSWER, MARKER_LEN, MAC_LEN = 5, 6, 128, 16
local HELLO, RETRY, ACCEPT, REFUSE, UNKNOWN_SESSION, SEALED, REPEAT, PARITY = 1, 2, 3, 4, 5, 6, 7, 8
local QUACK, POLL, NEW_EPOCH, EPOCH, BYE, SHORT_QUACK = 1, 2, 3, 4, 5, 6
local KEEP, KEPT, REQUEST, NOTHING, TAIL, PROTECT, SCHEDULE, LIST, SYMBOL = 7, 8, 9, 10, 11, 12, 13, 14, 15
local LINK, LINKED, RELAY = 16, 17, 18
local MAX_RANGES, RANGE_LEN, MIN_KEPT_LEN, MAX_KEPT_LEN = 16, 9, 4, 1472
local MAX_WINDOW, WHOLE_SHARE, MIN_SYMBOL_LEN, MAX_SYMBOL_LEN = 64, 1024, 6, 1474
local MAX_SENT_SYMBOL_LEN, MAX_RELAY_LEN = 1024, 1024
local AT_END, WHOLE, MAX_OFFSET = 0xffff, 0xfffe, 21
local KEY_LEN, TAG_LEN, ACCEPT_PAYLOAD_LEN = 32, 16, 16
-- Of a first handshake message, unpinned and pinned, and of a second.
local HELLO_LEN = { [0] = 96, [1] = 112 }
local ACCEPT_LEN = { unpinned = 112, pinned = 64 }

local DATAGRAMS = {
    [HELLO] = "HELLO", [RETRY] = "RETRY", [ACCEPT] = "ACCEPT", [REFUSE] = "REFUSE",
    [UNKNOWN_SESSION] = "UNKNOWN SESSION", [SEALED] = "SEALED", [REPEAT] = "REPEAT",
    [PARITY] = "PARITY",
}
local MESSAGES = { [QUACK] = "quACK", [POLL] = "POLL", [NEW_EPOCH] = "NEW EPOCH", [EPOCH] = "EPOCH", [BYE] = "BYE",
    [SHORT_QUACK] = "short quACK", [KEEP] = "KEEP", [KEPT] = "KEPT", [REQUEST] = "REQUEST", [NOTHING] = "NOTHING",
    [TAIL] = "TAIL", [PROTECT] = "PROTECT", [SCHEDULE] = "SCHEDULE",
    [LIST] = "LIST", [SYMBOL] = "SYMBOL", [LINK] = "LINK", [LINKED] = "LINKED", [RELAY] = "RELAY" }
local PATTERNS = { [0] = "unpinned (NX)", [1] = "pinned (NK)" }
local REFUSALS = { [1] = "full", [2] = "terms", [3] = "taken" }
local FILTERS = { [0] = "all datagrams", [1] = "QUIC short headers" }
local MICROSECONDS = { " \xc2\xb5s" }

local sidekick = Proto("sidekick", "Sidekick Protocol")
-- A second one, which Wireshark calls last; see the end of the file.
local late = Proto("sidekick_late", "Sidekick Protocol, on the path of a flow")

sidekick.prefs.keylog = Pref.string("Key log file", "", "Names a file with the keys of sessions, to open what is sealed")

local field, list = {}, {}
local PARTS = { [0] = "whole", [1] = "first of two", [2] = "second of two" }
local function define(name, kind, label, ...)
    local made = ProtoField[kind]("sidekick." .. name, label, ...)
    list[#list + 1] = made
    return made
end
local function defined(name, ...) field[name] = define(name, ...) end

defined("path_type", "uint8", "Type", base.DEC, { [MARKER] = "marker", [ANSWER] = "answer" })
defined("handle", "bytes", "Handle")
defined("magic", "string", "Magic")
defined("version", "uint8", "Version", base.DEC, nil, 0xf0)
field.path_version = define("version", "uint8", "Version", base.DEC)
defined("nonce", "bytes", "Nonce")
defined("reply_port", "uint16", "Reply port", base.DEC)
defined("padding", "bytes", "Padding")
defined("type", "uint8", "Type", base.DEC, DATAGRAMS, 0x0f)
defined("session", "uint32", "Session", base.HEX)
defined("family", "uint8", "Address family", base.DEC, { [4] = "IPv4", [6] = "IPv6" })
for name, label in pairs({ proxy = "Proxy", source = "Source", destination = "Destination" }) do
    defined(name .. "_address", "ipv4", label .. " address")
    defined(name .. "_address6", "ipv6", label .. " address")
    defined(name .. "_port", "uint16", label .. " port", base.DEC)
end
defined("cookie", "bytes", "Cookie")
defined("echo", "bytes", "Echo of the handshake message")
defined("refusal", "uint8", "Reason", base.DEC, REFUSALS)
defined("pattern", "uint8", "Pattern", base.DEC, PATTERNS)
defined("handshake", "bytes", "Handshake message")
defined("ephemeral", "bytes", "Ephemeral public key")
defined("encrypted_static", "bytes", "Static public key, encrypted")
defined("encrypted_payload", "bytes", "Payload, encrypted")
defined("threshold", "uint8", "Threshold (sums of a quACK)", base.DEC)
defined("every_packets", "uint16", "A quACK every so many packets", base.DEC)
defined("every_us", "uint32", "A quACK every", base.DEC + base.UNIT_STRING, MICROSECONDS)
defined("identifier_offset", "uint16", "Identifier offset", base.DEC)
defined("filter", "uint8", "What counts", base.DEC, FILTERS)
defined("sequence", "uint32", "Sequence number", base.DEC)
defined("ciphertext", "bytes", "Sealed message")
defined("tag", "bytes", "Authentication tag")
defined("sealed_by", "string", "Sealed by")
defined("message", "uint8", "Message", base.DEC, MESSAGES)
defined("epoch", "uint16", "Epoch", base.DEC)
defined("token", "uint16", "Token", base.DEC)
defined("age_us", "uint32", "Age of the last packet", base.DEC + base.UNIT_STRING, MICROSECONDS)
defined("first", "uint32", "First identifier", base.HEX)
defined("count_low", "uint16", "Packets seen in the epoch, modulo 65536", base.DEC)
defined("last_low", "uint16", "Last identifier, modulo 65536", base.HEX)
defined("last", "uint32", "Last identifier", base.HEX)
defined("count", "uint32", "Packets seen in the epoch", base.DEC)
defined("number_of_sums", "uint8", "Number of sums", base.DEC)
defined("sum", "uint32", "Sum", base.DEC)
defined("wanted_sums", "uint8", "Sums wanted", base.DEC)
defined("age_ms", "uint16", "Kept for", base.DEC + base.UNIT_STRING, { " ms" })
defined("number", "uint16", "Number", base.DEC)
defined("range_flags", "uint8", "Ends of the range", base.HEX)
defined("after", "uint32", "After", base.HEX)
defined("before", "uint32", "Before", base.HEX)
defined("ranges", "uint16", "Ranges without a datagram, one bit each", base.HEX)
defined("passed", "uint32", "Datagrams kept so far", base.DEC)
defined("range", "uint8", "Range of the request", base.DEC, nil, 0x0f)
defined("part", "uint8", "Part of the copy", base.DEC, PARTS, 0xf0)
defined("index", "uint8", "Place in the range", base.DEC)
defined("total", "uint8", "Copies for the range", base.DEC)
defined("datagram", "bytes", "Copy")
defined("window", "uint8", "Datagrams in the window", base.DEC)
defined("listed", "uint8", "Identifiers listed", base.DEC)
defined("identifier", "uint32", "Identifier", base.HEX)
defined("symbol", "bytes", "Repair symbol")
defined("symbol_part", "uint8", "Part of the repair symbol", base.DEC, PARTS)
defined("relay_part", "uint8", "Part of the datagram", base.DEC, PARTS)
defined("class", "uint8", "Traffic class", base.HEX)
defined("wait_ms", "uint8", "Wait for lower numbers", base.DEC + base.UNIT_STRING, { " ms" })
defined("newest", "uint16", "Newest number that arrived", base.DEC)
defined("arrived", "bytes", "Which of the latest 512 arrived, one bit each")
defined("share", "uint16", "Repair symbols for 1024 datagrams", base.DEC)
defined("list", "uint8", "Datagrams before a list", base.DEC)
defined("interval_us", "uint32", "Interval of the flow's packets", base.DEC + base.UNIT_STRING, MICROSECONDS)
defined("flush_us", "uint16", "Flush", base.DEC + base.UNIT_STRING, MICROSECONDS)
defined("gap_us", "uint16", "Wait behind a gap", base.DEC + base.UNIT_STRING, MICROSECONDS)
defined("wait_us", "uint16", "Wait for a list", base.DEC + base.UNIT_STRING, MICROSECONDS)
defined("error", "string", "Error")
sidekick.fields = list

local malformed = ProtoExpert.new("sidekick.malformed", "Not of this protocol", expert.group.MALFORMED, expert.severity.ERROR)
local cut = ProtoExpert.new("sidekick.cut", "The capture holds no more of this datagram", expert.group.UNDECODED, expert.severity.NOTE)
local unopened = ProtoExpert.new("sidekick.unopened", "Not opened", expert.group.UNDECODED, expert.severity.WARN)
local refused = ProtoExpert.new("sidekick.refused", "The proxy does not count", expert.group.RESPONSE_CODE, expert.severity.NOTE)
sidekick.experts = { malformed, cut, unopened, refused }

------------------------------------------------------------------------------------------------------------------------
-- ChaCha20-Poly1305 (RFC 8439), over strings.

-- Lua 5.2 has a library for bits. Later versions have operators, which 5.2 cannot parse.
local bits = bit32 or load([[
    return {
        bxor = function(x, y) return (x ~ y) & 0xffffffff end,
        band = function(x, y) return x & y end,
        lrotate = function(x, n) return (x << n | x >> (32 - n)) & 0xffffffff end,
    }]])()
local WORD = 4294967296

local function word(s, at)
    local a, b, c, d = s:byte(at, at + 3)
    return a + 256 * b + 65536 * c + 16777216 * d
end

local function little_endian(n, len)
    local out = {}
    for i = 1, len do
        out[i] = string.char(n % 256)
        n = (n - n % 256) / 256
    end
    return table.concat(out)
end

local ROUND = {
    { 1, 5, 9, 13 }, { 2, 6, 10, 14 }, { 3, 7, 11, 15 }, { 4, 8, 12, 16 },
    { 1, 6, 11, 16 }, { 2, 7, 12, 13 }, { 3, 8, 9, 14 }, { 4, 5, 10, 15 },
}

local function chacha20_block(key, counter, nonce)
    local state = { word("expand 32-byte k", 1), word("expand 32-byte k", 5), word("expand 32-byte k", 9), word("expand 32-byte k", 13) }
    for i = 0, 7 do state[5 + i] = word(key, 4 * i + 1) end
    state[13] = counter
    for i = 0, 2 do state[14 + i] = word(nonce, 4 * i + 1) end
    local w = {}
    for i = 1, 16 do w[i] = state[i] end
    local bxor, lrotate = bits.bxor, bits.lrotate
    local function step(a, b, d, n)
        local sum = (w[a] + w[b]) % WORD
        w[a] = sum
        w[d] = lrotate(bxor(w[d], sum), n)
    end
    for _ = 1, 10 do
        for i = 1, 8 do
            local q = ROUND[i]
            local a, b, c, d = q[1], q[2], q[3], q[4]
            step(a, b, d, 16)
            step(c, d, b, 12)
            step(a, b, d, 8)
            step(c, d, b, 7)
        end
    end
    local out = {}
    for i = 1, 16 do out[i] = little_endian((w[i] + state[i]) % WORD, 4) end
    return table.concat(out)
end

-- A number of 130 bits is ten limbs of 13. So reduction modulo 2^130 - 5 moves whole limbs, and no
-- product exceeds 2^53.
local LIMBS, LIMB = 10, 8192

local function limbs(s)
    local out, acc, scale, n = {}, 0, 1, 0
    for i = 1, #s do
        acc, scale = acc + s:byte(i) * scale, scale * 256
        while scale >= LIMB and n < LIMBS do
            n = n + 1
            out[n] = acc % LIMB
            acc, scale = (acc - out[n]) / LIMB, scale / LIMB
        end
    end
    while n < LIMBS do
        n = n + 1
        out[n] = acc % LIMB
        acc = (acc - out[n]) / LIMB
    end
    return out
end

-- Leaves each limb below 2^13, and returns the carry out of the last.
local function carry(h)
    local over = 0
    for i = 1, LIMBS do
        over = over + h[i]
        h[i] = over % LIMB
        over = (over - h[i]) / LIMB
    end
    return over
end

-- 2^130 is 5 modulo 2^130 - 5.
local function fold(h)
    local over = carry(h)
    h[1] = h[1] + 5 * over
end

local function poly1305(key, data)
    local r = { key:byte(1, 16) }
    for _, i in ipairs({ 4, 8, 12, 16 }) do r[i] = bits.band(r[i], 15) end
    for _, i in ipairs({ 5, 9, 13 }) do r[i] = bits.band(r[i], 252) end
    r = limbs(string.char(table.unpack(r)))
    local h = limbs("")
    for at = 1, #data, 16 do
        local block = limbs(data:sub(at, at + 15) .. "\1")
        for i = 1, LIMBS do h[i] = h[i] + block[i] end
        local product = {}
        for i = 1, LIMBS do
            local sum, wrapped = 0, 0
            for j = 1, i do sum = sum + h[j] * r[i - j + 1] end
            for j = i + 1, LIMBS do wrapped = wrapped + h[j] * r[i - j + 1 + LIMBS] end
            product[i] = sum + 5 * wrapped
        end
        h = product
        fold(h)
        fold(h)
    end
    fold(h)
    -- A number not below the modulus exceeds 2^130 once 5 is added.
    local reduced = {}
    for i = 1, LIMBS do reduced[i] = h[i] end
    reduced[1] = reduced[1] + 5
    if carry(reduced) > 0 then h = reduced end
    local s = limbs(key:sub(17, 32))
    for i = 1, LIMBS do h[i] = h[i] + s[i] end
    carry(h)
    local out, acc, scale, n = {}, 0, 1, 0
    for i = 1, LIMBS do
        acc, scale = acc + h[i] * scale, scale * LIMB
        while scale >= 256 and n < 16 do
            n = n + 1
            out[n] = string.char(acc % 256)
            acc, scale = (acc - acc % 256) / 256, scale / 256
        end
    end
    return table.concat(out)
end

-- Returns the message, or nil if the tag is not that of this key. There is no associated data.
local function unseal(key, sequence, sealed)
    local nonce = "\0\0\0\0" .. little_endian(sequence, 8)
    local len = #sealed - TAG_LEN
    local text = sealed:sub(1, len)
    local once = chacha20_block(key, 0, nonce):sub(1, 32)
    local padded = text .. ("\0"):rep(-len % 16) .. little_endian(0, 8) .. little_endian(len, 8)
    if poly1305(once, padded) ~= sealed:sub(len + 1) then return nil end
    local out, stream = {}, nil
    for i = 0, len - 1 do
        if i % 64 == 0 then stream = chacha20_block(key, 1 + i / 64, nonce) end
        out[i + 1] = string.char(bits.bxor(text:byte(i + 1), stream:byte(i % 64 + 1)))
    end
    return table.concat(out)
end

------------------------------------------------------------------------------------------------------------------------
-- The key log.

-- Lists of { direction, key } by session number.
local keys = {}
local keylog_error

local function read_keylog()
    keys, keylog_error = {}, nil
    local path = sidekick.prefs.keylog
    if path == "" then return end
    local file, why = io.open(path, "r")
    if not file then
        keylog_error = "the key log cannot be read: " .. tostring(why)
        return
    end
    local number = 0
    for line in file:lines() do
        number = number + 1
        local session, direction, key = line:match("^%s*(%x+)%s+(%a+)%s+(%x+)%s*$")
        if session and #session == 8 and #key == 64 and (direction == "sender" or direction == "proxy") then
            session = tonumber(session, 16)
            keys[session] = keys[session] or {}
            local raw = key:gsub("%x%x", function(byte) return string.char(tonumber(byte, 16)) end)
            table.insert(keys[session], { direction = direction, key = raw })
        elseif line:match("%S") and not line:match("^%s*#") then
            keylog_error = ("line %d of the key log is not: session, direction, key"):format(number)
        end
    end
    file:close()
end

sidekick.init = read_keylog
sidekick.prefs_changed = read_keylog

------------------------------------------------------------------------------------------------------------------------
-- Reading, never past the end. An error is thrown as a table, which `guarded` shows.

local function fail(why, item) error({ why = why, item = item }, 0) end

local function reader(tvb)
    return { tvb = tvb, at = 0, len = tvb:captured_len(), is_cut = tvb:captured_len() < tvb:reported_len() }
end

local function left(r) return r.len - r.at end

local function take(r, n)
    if n > left(r) then fail(r.is_cut and "cut" or "truncated") end
    r.at = r.at + n
    return r.tvb:range(r.at - n, n)
end

-- Shows the next `n` bytes, and returns them and their item.
local function show(r, tree, name, n)
    local range = take(r, n)
    return range, tree:add(field[name], range)
end

local function number(r, tree, name, n)
    local range, item = show(r, tree, name, n)
    return range:uint(), item
end

-- A number that must not be 0; `called` is the field's name in an error.
local function nonzero(r, tree, name, n, called)
    local value, item = number(r, tree, name, n)
    if value == 0 then fail("field " .. called, item) end
    return value, item
end

local function counted(n, what) return ("%d %s%s"):format(n, what, n == 1 and "" or "s") end

local function finish(r, tree)
    if left(r) > 0 then fail("trailing bytes", tree) end
end

-- Whether the capture lacks bytes of the datagram: a field that reaches to the end cannot be shown.
local function need_all(r)
    if r.is_cut then fail("cut") end
end

local function guarded(tree, pinfo, dissect)
    local fine, thrown = pcall(dissect)
    if fine then return end
    if type(thrown) ~= "table" then error(thrown, 0) end
    if thrown.why == "cut" then
        tree:add_proto_expert_info(cut)
        pinfo.cols.info:append(" [cut by the capture]")
        return
    end
    local item = tree:add(field.error, thrown.why):set_generated()
    local at = thrown.item or item
    at:add_proto_expert_info(malformed, "Not of this protocol: " .. thrown.why)
    pinfo.cols.info:append(" [malformed: " .. thrown.why .. "]")
end

------------------------------------------------------------------------------------------------------------------------
-- Fields that several messages have.

local function read_family(r, tree)
    local family, item = number(r, tree, "family", 1)
    if family ~= 4 and family ~= 6 then fail("field address family", item) end
    return family
end

local function read_end(r, tree, family, which)
    local ip, _ = show(r, tree, which .. (family == 4 and "_address" or "_address6"), family == 4 and 4 or 16)
    local port = nonzero(r, tree, which .. "_port", 2, which .. " port")
    if family == 4 then return ("%s:%d"):format(tostring(ip:ipv4()), port) end
    return ("[%s]:%d"):format(tostring(ip:ipv6()), port)
end

local function read_flow(r, tree)
    local flow = tree:add(r.tvb:range(r.at), "Flow")
    local begin = r.at
    local family = read_family(r, flow)
    local source = read_end(r, flow, family, "source")
    local destination = read_end(r, flow, family, "destination")
    local text = source .. " \xe2\x86\x92 " .. destination
    flow:set_text("Flow: " .. text)
    flow:set_len(r.at - begin)
    return text
end

local function read_cookie(r, tree)
    local cookie, item = show(r, tree, "cookie", 20)
    local none = cookie:raw() == ("\0"):rep(20)
    if none then item:append_text(" (none)") end
    return none, item
end

local function read_terms(r, tree)
    nonzero(r, tree, "threshold", 1, "threshold")
    local packets, item = number(r, tree, "every_packets", 2)
    if packets == 0 then item:append_text(" (not by packets)") end
    local every
    every, item = number(r, tree, "every_us", 4)
    if every == 0 then item:append_text(" (not by time)") end
    local offset
    offset, item = number(r, tree, "identifier_offset", 2)
    if offset == AT_END then
        item:append_text(" (the last four bytes)")
    elseif offset == WHOLE then
        item:append_text(" (a hash of the whole payload)")
    elseif offset > MAX_OFFSET then
        fail("field identifier offset", item)
    end
    local filter
    filter, item = number(r, tree, "filter", 1)
    if not FILTERS[filter] then fail("field filter", item) end
end

------------------------------------------------------------------------------------------------------------------------
-- Markers and answers.

local function is_path(tvb)
    if tvb:captured_len() < MAGIC_AT + #MAGIC then return false end
    local first = tvb:range(0, 1):uint()
    return (first == MARKER or first == ANSWER) and tvb:range(MAGIC_AT, #MAGIC):raw() == MAGIC
end

-- An answer masks handle and nonce with the cookie's MAC, the answer's last bytes. The dissector
-- shows them unmasked.
local function show_masked(r, tree, name, n, kind)
    local len = r.tvb:captured_len()
    if kind ~= ANSWER or len < MAC_LEN then
        show(r, tree, name, n)
        return
    end
    local bytes, mac = take(r, n):bytes(), r.tvb:range(len - MAC_LEN, MAC_LEN):bytes()
    for i = 0, n - 1 do
        bytes:set_index(i, bits.bxor(bytes:get_index(i), mac:get_index(i % MAC_LEN)))
    end
    tree:add(field[name], bytes:tvb("Unmasked " .. name):range())
end

local function dissect_path(r, tree, info)
    local kind = number(r, tree, "path_type", 1)
    info:set(kind == MARKER and "Marker" or "Answer")
    show_masked(r, tree, "handle", 20, kind)
    show(r, tree, "magic", #MAGIC)
    local version, item = number(r, tree, "path_version", 1)
    if version ~= VERSION then fail("version", item) end
    show_masked(r, tree, "nonce", 16, kind)
    if kind == MARKER then
        local port
        port, item = number(r, tree, "reply_port", 2)
        item:append_text(port == 0 and " (answer along the path)" or " (of the adjacent socket)")
        info:append(port == 0 and ": is there a proxy? Answer along the path" or ": is there a proxy? Answer to port " .. port)
        if r.tvb:reported_len() < MARKER_LEN then fail("truncated") end
        need_all(r)
        show(r, tree, "padding", left(r))
        return
    end
    local proxy = tree:add(r.tvb:range(r.at), "Proxy")
    local begin = r.at
    local at = read_end(r, proxy, read_family(r, proxy), "proxy")
    proxy:set_text("Proxy: " .. at)
    proxy:set_len(r.at - begin)
    info:append((": proxy at %s, flow %s"):format(at, read_flow(r, tree)))
    local none
    none, item = read_cookie(r, tree)
    finish(r, tree)
    if none then fail("field cookie", item) end
end

------------------------------------------------------------------------------------------------------------------------
-- Messages under seal.

local function read_sums(r, tree, sums)
    local below = tree:add(take(r, 4 * sums), ("Power sums (%d)"):format(sums))
    r.at = r.at - 4 * sums
    for power = 1, sums do
        local _, sum = show(r, below, "sum", 4)
        sum:prepend_text(("Power %d: "):format(power))
    end
end

-- An end that is not there has the identifier 0.
local function read_range(r, tree)
    local flags, item = number(r, tree, "range_flags", 1)
    if flags > 15 or flags >= 8 and flags % 4 < 2 then fail("field range", item) end
    if bits.band(flags, 4) ~= 0 then item:append_text(" (in two parts)") end
    for name, bit in pairs({ after = 1, before = 2 }) do
        local at = r.at + (name == "before" and 4 or 0)
        if r.len < at + 4 then fail("truncated") end
        local range = r.tvb:range(at, 4)
        if bits.band(flags, bit) ~= 0 then
            tree:add(field[name], range)
        elseif range:uint() ~= 0 then
            fail("field range", item)
        end
    end
    take(r, 8)
end

local function read_window(r, tree)
    return (number(r, tree, "window", 1))
end

local messages = {
    [QUACK] = function(r, tree, info)
        local epoch = nonzero(r, tree, "epoch", 2, "epoch")
        local token, item = number(r, tree, "token", 2)
        if token == 0 then item:append_text(" (answers no poll)") end
        local age = number(r, tree, "age_us", 4)
        show(r, tree, "first", 4)
        show(r, tree, "last", 4)
        local count = number(r, tree, "count", 4)
        local sums = nonzero(r, tree, "number_of_sums", 1, "number of sums")
        info:append((" epoch %d, %s, last %d \xc2\xb5s ago, %s%s"):format(
            epoch, counted(count, "packet"), age, counted(sums, "sum"), token == 0 and "" or (", token %04x"):format(token)))
        read_sums(r, tree, sums)
    end,
    [POLL] = function(r, tree, info)
        local epoch = nonzero(r, tree, "epoch", 2, "epoch")
        local token = nonzero(r, tree, "token", 2, "token")
        local sums, item = number(r, tree, "wanted_sums", 1)
        if sums == 0 then item:append_text(" (as many as the threshold)") end
        info:append((" epoch %d, %s, token %04x"):format(
            epoch, sums == 0 and "as many sums as the threshold" or counted(sums, "sum"), token))
    end,
    [NEW_EPOCH] = function(r, tree, info)
        info:append((" after %d"):format(nonzero(r, tree, "epoch", 2, "epoch")))
    end,
    [EPOCH] = function(r, tree, info)
        info:append((" %d runs"):format(nonzero(r, tree, "epoch", 2, "epoch")))
    end,
    [BYE] = function() end,
    [SHORT_QUACK] = function(r, tree, info)
        local count = number(r, tree, "count_low", 2)
        show(r, tree, "last_low", 2)
        local length = left(r)
        if length == 0 or length % 4 ~= 0 then fail("truncated") end
        if length > 4 * 255 then fail("trailing bytes") end
        info:append((" packet %d modulo 65536, %s"):format(count, counted(length / 4, "sum")))
        read_sums(r, tree, length / 4)
    end,
    [KEEP] = function(r, tree, info)
        local age = nonzero(r, tree, "age_ms", 2, "age")
        show(r, tree, "handle", 20)
        show(r, tree, "nonce", 16)
        info:append((" copies for %d ms, %s"):format(age, read_cookie(r, tree) and "no cookie" or "with a cookie"))
    end,
    [KEPT] = function(r, tree, info)
        local age, item = number(r, tree, "age_ms", 2)
        if age == 0 then item:append_text(" (not at all)") end
        info:append(age == 0 and ": no copies" or (" for %d ms"):format(age))
    end,
    [REQUEST] = function(r, tree, info)
        local asked = nonzero(r, tree, "number", 2, "request number")
        local length = left(r)
        if length == 0 or length % RANGE_LEN ~= 0 then fail("truncated") end
        if length > MAX_RANGES * RANGE_LEN then fail("trailing bytes") end
        for _ = 1, length / RANGE_LEN do read_range(r, tree) end
        info:append((" %d of %s"):format(asked, counted(length / RANGE_LEN, "range")))
    end,
    [NOTHING] = function(r, tree, info)
        info:append((" for request %d"):format(nonzero(r, tree, "number", 2, "request number")))
        nonzero(r, tree, "ranges", 2, "ranges")
    end,
    [TAIL] = function(r, tree, info)
        show(r, tree, "last", 4)
        info:append((" after %s"):format(counted(number(r, tree, "passed", 4), "datagram")))
    end,
    [PROTECT] = function(r, tree, info)
        local share, item = number(r, tree, "share", 2)
        local window = read_window(r, tree)
        show(r, tree, "flush_us", 2)
        show(r, tree, "list", 1)
        if share > WHOLE_SHARE then fail("field share", item) end
        if window == 0 or window > MAX_WINDOW then fail("field window") end
        info:append(share == 0 and ": no parity" or (": %d for 1024, window %d"):format(share, window))
    end,
    [SCHEDULE] = function(r, tree, info)
        local epoch = nonzero(r, tree, "epoch", 2, "epoch")
        local token = nonzero(r, tree, "token", 2, "token")
        local packets = number(r, tree, "every_packets", 2)
        local every = number(r, tree, "every_us", 4)
        local interval = number(r, tree, "interval_us", 4)
        local watched = interval == 0 and "" or (", a packet each %d \xc2\xb5s"):format(interval)
        info:append((" epoch %d, a quACK every %d packets or %d \xc2\xb5s%s, token %04x"):format(
            epoch, packets, every, watched, token))
    end,
    [LIST] = function(r, tree, info)
        show(r, tree, "first", 4)
        show(r, tree, "gap_us", 2)
        show(r, tree, "wait_us", 2)
        local listed = math.floor(left(r) / 4)
        if left(r) % 4 ~= 0 then fail("truncated") end
        if listed > MAX_WINDOW then fail("trailing bytes", tree) end
        for _ = 1, listed do show(r, tree, "identifier", 4) end
        info:append((" of %s"):format(counted(listed, "datagram")))
    end,
    [SYMBOL] = function(r, tree, info)
        local symbol = number(r, tree, "number", 2)
        show(r, tree, "first", 4)
        local window = read_window(r, tree)
        local part, item = number(r, tree, "symbol_part", 1)
        if window == 0 or window > MAX_WINDOW then fail("field window") end
        if not PARTS[part] then fail("field part", item) end
        if left(r) < (part == 0 and MIN_SYMBOL_LEN or 1) then fail("truncated") end
        if left(r) > MAX_SENT_SYMBOL_LEN then fail("trailing bytes", tree) end
        show(r, tree, "symbol", left(r))
        info:append((" %d of %s, %s"):format(symbol, counted(window, "datagram"), PARTS[part]))
    end,
    [LINK] = function(r, tree, info)
        show(r, tree, "token", 2)
        info:append(read_cookie(r, tree) and ", no cookie" or ", with a cookie")
    end,
    [LINKED] = function(r, tree, info)
        show(r, tree, "token", 2)
        local in_force = read_cookie(r, tree)
        info:append(in_force and ", in force" or ", with a cookie")
        if in_force then
            show(r, tree, "newest", 2)
            show(r, tree, "arrived", 64)
        end
    end,
    [RELAY] = function(r, tree, info)
        local relayed = number(r, tree, "number", 2)
        local part, item = number(r, tree, "relay_part", 1)
        if not PARTS[part] then fail("field part", item) end
        show(r, tree, "class", 1)
        show(r, tree, "wait_ms", 1)
        local length = left(r)
        if length < 1 then fail("truncated") end
        if length > MAX_RELAY_LEN then fail("trailing bytes", tree) end
        show(r, tree, "datagram", length)
        info:append((" %d, %s"):format(relayed, PARTS[part]))
    end,
}

local function dissect_message(r, tree, info)
    local kind, item = number(r, tree, "message", 1)
    if not messages[kind] then fail("type", item) end
    info:append((", %s"):format(MESSAGES[kind]))
    messages[kind](r, tree, info)
    finish(r, tree)
end

------------------------------------------------------------------------------------------------------------------------
-- Datagrams at the proxy's port.

local datagrams = {
    [HELLO] = function(r, tree, info)
        info:append(": count " .. read_flow(r, tree))
        local none = read_cookie(r, tree)
        local pattern, item = number(r, tree, "pattern", 1)
        if not PATTERNS[pattern] then fail("field pattern", item) end
        info:append((", %s, %s"):format(pattern == 0 and "unpinned" or "pinned", none and "no cookie" or "with a cookie"))
        local message
        message, item = show(r, tree, "handshake", HELLO_LEN[pattern])
        finish(r, tree)
        local inner = reader(message:tvb())
        show(inner, item, "ephemeral", KEY_LEN)
        if pattern == 0 then
            read_terms(inner, item)
            show(inner, item, "padding", left(inner))
        else
            show(inner, item, "encrypted_payload", left(inner))
        end
    end,
    [RETRY] = function(r, tree, info)
        info:append(": ask again with this cookie")
        show(r, tree, "echo", 8)
        local none, item = read_cookie(r, tree)
        if none then fail("field cookie", item) end
        finish(r, tree)
    end,
    [ACCEPT] = function(r, tree, info)
        need_all(r)
        -- An item needs a byte to stand on.
        if left(r) == 0 then fail("field handshake") end
        local message, item = show(r, tree, "handshake", left(r))
        local unpinned = message:len() == ACCEPT_LEN.unpinned
        if not unpinned and message:len() ~= ACCEPT_LEN.pinned then fail("field handshake", item) end
        info:append(unpinned and ": unpinned" or ": pinned")
        local inner = reader(message:tvb())
        show(inner, item, "ephemeral", KEY_LEN)
        if unpinned then show(inner, item, "encrypted_static", KEY_LEN + TAG_LEN) end
        show(inner, item, "encrypted_payload", ACCEPT_PAYLOAD_LEN + TAG_LEN)
    end,
    [REFUSE] = function(r, tree, info)
        show(r, tree, "echo", 8)
        local why, item = number(r, tree, "refusal", 1)
        if not REFUSALS[why] then fail("field refusal", item) end
        info:append(": " .. REFUSALS[why])
        item:add_proto_expert_info(refused)
        finish(r, tree)
    end,
    [UNKNOWN_SESSION] = function(r, tree)
        tree:add_proto_expert_info(refused)
        finish(r, tree)
    end,
    [REPEAT] = function(r, tree, info)
        local asked = nonzero(r, tree, "number", 2, "request number")
        local place, item = show(r, tree, "range", 1)
        local part = tree:add(field.part, place)
        if place:uint() >= 0x30 then fail("field part", part) end
        local index = number(r, tree, "index", 1)
        local total
        total, item = number(r, tree, "total", 1)
        if index >= total then fail("field range", item) end
        need_all(r)
        local length = left(r)
        if length < MIN_KEPT_LEN then fail("truncated") end
        if length > MAX_KEPT_LEN then fail("trailing bytes", tree) end
        show(r, tree, "datagram", length)
        info:append((": copy %d of %d for request %d, %s"):format(index + 1, total, asked, counted(length, "byte")))
    end,
    [PARITY] = function(r, tree, info)
        local symbol = number(r, tree, "number", 2)
        show(r, tree, "first", 4)
        local window = read_window(r, tree)
        local listed, item = number(r, tree, "listed", 1)
        if window == 0 or window > MAX_WINDOW then fail("field window") end
        if listed > window then fail("field identifiers", item) end
        need_all(r)
        for _ = 1, listed do show(r, tree, "identifier", 4) end
        local length = left(r)
        if length < MIN_SYMBOL_LEN and not (length == 0 and listed > 0) then fail("truncated") end
        if length + 4 * listed > MAX_SYMBOL_LEN then fail("trailing bytes", tree) end
        if length > 0 then show(r, tree, "symbol", length) end
        local what = length > 0 and ("symbol %d of"):format(symbol) or "list within"
        info:append((": %s %s, %s"):format(what, counted(window, "datagram"), counted(length, "byte")))
    end,
    [SEALED] = function(r, tree, info, session)
        local sequence = number(r, tree, "sequence", 4)
        info:append((" seq %d"):format(sequence))
        need_all(r)
        if left(r) <= TAG_LEN then fail("truncated") end
        local sealed, item = show(r, tree, "ciphertext", left(r))
        item:add(field.tag, sealed:range(sealed:len() - TAG_LEN))
        if keylog_error then item:add_proto_expert_info(unopened, "Not opened: " .. keylog_error) end
        for _, candidate in ipairs(keys[session] or {}) do
            local plain = unseal(candidate.key, sequence, sealed:raw())
            if plain then
                tree:add(field.sealed_by, candidate.direction):set_generated()
                info:append(" from the " .. candidate.direction)
                local opened = reader(ByteArray.new(plain, true):tvb("Sidekick message"))
                return dissect_message(opened, tree:add(opened.tvb:range(), "Message"), info)
            end
        end
        if keys[session] then item:add_proto_expert_info(unopened, "Not opened: no key of this session fits") end
        info:append(", sealed, " .. counted(sealed:len() - TAG_LEN, "byte"))
    end,
}

local function dissect_datagram(r, tree, info)
    info:set("Sidekick")
    local first, item = take(r, 1), nil
    r.at = 0
    local version = math.floor(first:uint() / 16)
    item = tree:add(field.version, first)
    if version ~= VERSION then fail("version", item) end
    local kind
    kind, item = show(r, tree, "type", 1)
    kind = kind:uint() % 16
    if DATAGRAMS[kind] then info:set(DATAGRAMS[kind]) end
    local session = number(r, tree, "session", 4)
    if not datagrams[kind] then fail("type", item) end
    info:append((" #%08x"):format(session))
    datagrams[kind](r, tree, info, session)
end

-- The datagram of this packet that is dissected already.
local done

local function dissect(tvb, pinfo, root)
    done = pinfo.number
    pinfo.cols.protocol = "Sidekick"
    local tree = root:add(sidekick, tvb:range())
    local kind = is_path(tvb) and dissect_path or dissect_datagram
    guarded(tree, pinfo, function() kind(reader(tvb), tree, pinfo.cols.info) end)
    return tvb:captured_len()
end

sidekick.dissector = dissect
DissectorTable.get("udp.port"):add(PORT, sidekick)

sidekick:register_heuristic("udp", function(tvb, pinfo, root)
    if not is_path(tvb) then return false end
    dissect(tvb, pinfo, root)
    return true
end)

-- Once Wireshark has classified a flow as QUIC, it asks no other dissector about its packets. It
-- calls this one last, for every packet.
local payload = Field.new("udp.payload")

function late.dissector(_, pinfo, root)
    local found = payload()
    if found and done ~= pinfo.number then
        local tvb = found.range:tvb()
        if is_path(tvb) then dissect(tvb, pinfo, root) end
    end
    done = nil
end

register_postdissector(late)
