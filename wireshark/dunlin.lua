-- Dissects Dunlin's additions to TLS in Wireshark and tshark. Run `tshark -X lua_script:wireshark/dunlin.lua …`, or copy this
-- file into the folder of personal Lua plugins (Help, About Wireshark, Folders). TLS 1.3 needs the key log of one side.
--
-- It dissects handshake_cache and abbreviated messages (docs/handshake-cache.md), and cached_info (RFC 7924), over streams and
-- over datagrams; and over datagrams the extension association_port (docs/association-ports.md). For records with connection IDs it
-- shows over which path they came, counted for each ID, and which of them are return routability checks (RFC 9853). It works on the messages that Wireshark has found, and over datagrams on those that are not fragmented. Wireshark itself still marks abbreviated messages as "Malformed Packet".

local dunlin = Proto("dunlin", "Dunlin's TLS extensions")

local CLIENT_HELLO, SERVER_HELLO, ENCRYPTED_EXTENSIONS = 1, 2, 8
local CERTIFICATE, CERTIFICATE_REQUEST = 11, 13
local CACHED_INFO, HANDSHAKE_CACHE, ASSOCIATION_PORT = 25, 0xff20, 0xff23
local NAME_LEN = 8

local messages = {
    [CERTIFICATE] = "Certificate",
    [CERTIFICATE_REQUEST] = "CertificateRequest",
}
-- RFC 7924, section 3.
local cached_types = { [1] = "cert", [2] = "cert_req" }

local cache = ProtoField.none("dunlin.handshake_cache", "handshake_cache")
local flags = ProtoField.uint8("dunlin.handshake_cache.flags", "Flags", base.HEX)
local flag_certificate = ProtoField.bool("dunlin.handshake_cache.flags.certificate", "Server's Certificate", 8, nil, 1)
local flag_request = ProtoField.bool("dunlin.handshake_cache.flags.certificate_request", "CertificateRequest", 8, nil, 2)
local certificate = ProtoField.bytes("dunlin.handshake_cache.certificate", "Server's Certificate")
local request = ProtoField.bytes("dunlin.handshake_cache.certificate_request", "CertificateRequest")
local ticket = ProtoField.bytes("dunlin.handshake_cache.ticket", "Ticket")
local index = ProtoField.uint8("dunlin.handshake_cache.index", "Ticket used", base.DEC,
    { [0] = "the first", [1] = "the second", [0xff] = "none" })
local info = ProtoField.none("dunlin.cached_info", "cached_info")
local info_type = ProtoField.uint8("dunlin.cached_info.type", "Type", base.DEC, cached_types)
local info_hash = ProtoField.bytes("dunlin.cached_info.hash_value", "Hash")
local port = ProtoField.none("dunlin.association_port", "association_port")
local port_modes = ProtoField.uint8("dunlin.association_port.modes", "Modes", base.HEX)
local port_ipc = ProtoField.bool("dunlin.association_port.modes.ipc", "IPC", 8, nil, 1)
local port_tcs = ProtoField.bool("dunlin.association_port.modes.tcs", "TCS", 8, nil, 2)
local port_mode = ProtoField.uint8("dunlin.association_port.mode", "Mode", base.DEC, { [1] = "IPC", [2] = "TCS" })
local port_number = ProtoField.uint16("dunlin.association_port.port", "Port", base.DEC)
local abbreviated = ProtoField.uint8("dunlin.abbreviated", "In the receiver's cache", base.DEC, messages)
local abbreviated_hash = ProtoField.bytes("dunlin.abbreviated.hash_value", "Hash")

local path = ProtoField.uint32("dunlin.path", "Path of this connection ID", base.DEC, nil, nil,
    "Each address from which records with the ID come is another path")
local path_check = ProtoField.none("dunlin.path_check", "return_routability_check")

dunlin.fields = {
    path, path_check,
    cache, flags, flag_certificate, flag_request, certificate, request, ticket, index, info, info_type, info_hash, abbreviated,
    abbreviated_hash, port, port_modes, port_ipc, port_tcs, port_mode, port_number,
}

local malformed = ProtoExpert.new("dunlin.malformed", "Malformed extension or message", expert.group.MALFORMED,
    expert.severity.ERROR)
dunlin.experts = { malformed }

-- Reads bytes from the front. If there are too few, it raises the error value `short`, which the dissector catches.
local short = {}
local Reader = {}
Reader.__index = Reader

function Reader.new(range)
    return setmetatable({ range = range, at = 0, stop = range and range:len() or 0 }, Reader)
end

function Reader:left()
    return self.stop - self.at
end

-- The next `count` bytes; nil if `count` is 0.
function Reader:take(count)
    if self:left() < count then error(short) end
    self.at = self.at + count
    return count > 0 and self.range(self.at - count, count) or nil
end

function Reader:number(count)
    return self:take(count):uint()
end

-- A vector whose length prefix has `count` bytes.
function Reader:vector(count)
    return Reader.new(self:take(self:number(count)))
end

local function cache_flags(tree, range)
    local item = tree:add(flags, range)
    item:add(flag_certificate, range)
    item:add(flag_request, range)
    return range:uint()
end

-- handshake-cache.md, section 3.
local function cache_offer(tree, r)
    if r:left() == 0 then
        tree:append_text(": supported")
        return
    end
    local set = cache_flags(tree, r:take(1))
    if bit.band(set, 1) ~= 0 then tree:add(certificate, r:take(NAME_LEN)) end
    if bit.band(set, 2) ~= 0 then tree:add(request, r:take(NAME_LEN)) end
    while r:left() > 0 do
        tree:add(ticket, r:take(NAME_LEN))
    end
end

local function cache_answer(tree, r)
    if r:left() == 0 then
        tree:append_text(": supported, and nothing used")
        return
    end
    cache_flags(tree, r:take(1))
    tree:add(index, r:take(1))
    if r:left() > 0 then error(short) end
end

-- RFC 7924, section 3.
local function cached_info(tree, r, is_offer)
    local objects = r:vector(2)
    while objects:left() > 0 do
        tree:add(info_type, objects:take(1))
        if is_offer then
            local hash = objects:vector(1)
            tree:add(info_hash, hash:take(hash:left()))
        end
    end
end

-- association-ports.md.
local function association_port(tree, r, is_offer)
    if is_offer then
        local modes = r:take(1)
        local item = tree:add(port_modes, modes)
        item:add(port_ipc, modes)
        item:add(port_tcs, modes)
    else
        tree:add(port_mode, r:take(1))
        tree:add(port_number, r:take(2))
    end
    if r:left() > 0 then error(short) end
end

-- Adds handshake_cache, cached_info and association_port if they are among the extensions.
local function extensions(tree, r, is_offer)
    local list = r:left() > 0 and r:vector(2) or r
    while list:left() > 0 do
        local start = list.at
        local typ = list:number(2)
        local body = list:vector(2)
        local whole = list.range(start, list.at - start)
        if typ == HANDSHAKE_CACHE then
            local item = tree:add(cache, whole)
            if is_offer then cache_offer(item, body) else cache_answer(item, body) end
        elseif typ == CACHED_INFO then
            cached_info(tree:add(info, whole), body, is_offer)
        elseif typ == ASSOCIATION_PORT then
            association_port(tree:add(port, whole), body, is_offer)
        end
    end
end

-- Recognises an abbreviated Certificate or CertificateRequest, which the receiver has in its cache. Before TLS 1.3 it is empty
-- or a hash. In TLS 1.3 it has one empty entry.
local function certificates(tree, typ, message, r, pinfo)
    local function add(range, hash)
        local item = tree:add(abbreviated, range, typ)
        local words = messages[typ] .. ", abbreviated"
        item:set_text(words .. ": the receiver has it in its cache")
        pinfo.cols.info:append(" [" .. words .. "]")
        if hash then item:add(abbreviated_hash, hash) end
    end
    if r:left() == 0 then
        add(message)
    elseif r:left() == 33 and r.range(0, 1):uint() == 32 then
        add(message, r.range(1, 32))
    elseif typ == CERTIFICATE and r.range(0, 1):uint() < r:left() then
        local after = Reader.new(r.range)
        after:vector(1)
        -- In TLS 1.3 the list is the last field of the message, and its entries have extensions.
        if after:left() >= 8 and after:number(3) == after:left() and after:number(3) == 0 then add(message) end
    end
end

local function message(tree, range, header, pinfo)
    local typ = range(0, 1):uint()
    local body = range:len() > header and range(header) or nil
    local r = Reader.new(body)
    if typ == CLIENT_HELLO then
        r:take(2 + 32)
        r:vector(1)
        if header > 4 then r:vector(1) end
        r:vector(2)
        r:vector(1)
        extensions(tree, r, true)
    elseif typ == SERVER_HELLO then
        r:take(2 + 32)
        r:vector(1)
        r:take(2 + 1)
        extensions(tree, r, false)
    elseif typ == ENCRYPTED_EXTENSIONS then
        extensions(tree, r, false)
    elseif messages[typ] then
        certificates(tree, typ, range, r, pinfo)
    end
end

-- The fields with the handshake messages that Wireshark has found, and the length of their header.
local sources = { { Field.new("tls.handshake"), 4 }, { Field.new("dtls.handshake"), 12 } }

local record_types, record_ids = Field.new("dtls.record.content_type"), Field.new("dtls.record.connection_id")
local RETURN_ROUTABILITY_CHECK = 27

-- The paths of each connection ID by the sender's address, and the path of each frame.
local paths, path_of = {}, {}

function dunlin.init()
    paths, path_of = {}, {}
end

-- Shows over which path a record with a connection ID came, and whether it checks a path.
local function show_paths(tree, pinfo)
    local id = record_ids()
    if not id then return end
    if not path_of[pinfo.number] then
        local key = id.range:bytes():tohex()
        local known = paths[key] or { count = 0 }
        paths[key] = known
        local from = tostring(pinfo.src) .. " " .. pinfo.src_port
        if not known[from] then
            known.count = known.count + 1
            known[from] = known.count
        end
        path_of[pinfo.number] = known[from]
    end
    tree:add(path, id.range, path_of[pinfo.number])
    for _, typ in ipairs({ record_types() }) do
        if typ.value == RETURN_ROUTABILITY_CHECK then
            tree:add(path_check, typ.range)
            pinfo.cols.info:append(" [return_routability_check]")
        end
    end
end

function dunlin.dissector(_, pinfo, root)
    local tree
    -- Add the tree only to packets with something to show.
    local lazy = {}
    function lazy.add(_, ...)
        tree = tree or root:add(dunlin)
        return tree:add(...)
    end
    show_paths(lazy, pinfo)
    for _, source in ipairs(sources) do
        local field, header = source[1], source[2]
        for _, found in ipairs({ field() }) do
            local range = found.range
            -- A fragment of a message in datagrams: its length is not the message's.
            local is_part = header > 4 and range:len() >= header and range(1, 3):uint() ~= range(9, 3):uint()
            if range:len() >= header and not is_part then
                local ok, what = pcall(message, lazy, range, header, pinfo)
                if not ok then
                    if what ~= short then error(what) end
                    lazy:add(dunlin, range):add_proto_expert_info(malformed)
                end
            end
        end
    end
end

-- The second argument makes Wireshark compute all fields, even those that are not displayed.
register_postdissector(dunlin, true)
