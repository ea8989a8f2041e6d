"""verbs_peer.py [PORT]: a verbs endpoint driven by JSON lines over TCP, for tests that need
exact control of what the kernel's Soft-RoCE does. One connection, one endpoint: one device,
one PD, one CQ, any number of QPs and MRs. Every request is {"op": NAME, ...}, every reply
{"ok": true, ...} or {"ok": false, "error": TEXT}. Lengths and offsets in bytes, data as hex,
immediate data as the number that travels in network order. When the connection ends,
everything the endpoint made is destroyed.

  hello    sgid? (default 1)                       -> gid
  mr       size, access?, foreign? (of another PD) -> mr, addr, rkey, lkey
  dereg    mr
  poke     mr, off, data | peek mr, off, len       -> data
  srq      max_wr, max_sge?                        -> srq
  srq_limit srq, limit
  use_cq   depth                                   (a new CQ, for the queue pairs to come and for poll)
  qp       type rc|uc|ud, srq?, max_wr?            -> qp, qpn   (RESET)
  connect  qp, dest_qpn, dgid, rq_psn, sq_psn, mtu 256..4096, timeout, retry, rnr_retry,
           min_rnr, rd_atomic, dest_rd_atomic?, qkey, access?, tclass?, rtr? (through INIT and RTR to RTS, or RTR only)
  state    qp                                      -> state (0 RESET 1 INIT 2 RTR 3 RTS 4 SQD 5 SQE 6 ERR), sq_psn, rq_psn
  modify   qp, to reset|sqd|err                    (state change)
  destroy  qp
  recv     qp|srq, mr, off, len, id, pieces? [[off, len]...] instead of off, len, twist? (of the lkey: exclusive or)
  send     qp, code send|send_imm|send_inv|write|write_imm|read|fadd|cswap, mr, off, len, id, pieces?,
           raddr?, rkey?, imm? (send_inv: the key), add|compare,swap?, flags signaled|solicited|fence|inline (default signaled),
           twist?, dest_qpn, dgid, qkey, tclass?, hop? (ud)
  reply    as send, wc (the id of a receive), grh_mr, grh_off: to where that came from (ibv_create_ah_from_wc)
  attach   qp, group, join? (also by a UDP socket: where nobody else has the group's packets let in)
  detach   qp, group
  mw       type 1|2                                -> mw, rkey
  bind     qp, mw, mr, off, len, access, id        -> rkey, the next one (type 1 by ibv_bind_mw, 2 by a request)
  local_inv qp, key, id | dealloc mw
  together calls [{op, ...}...]                    (one after the other, without waiting for requests)
  poll     n, ms (0: look once)                    -> wc [{id, status, vendor, opcode, len, imm, qpn, flags, src}]
  cnp      dest_qpn, src, dst, mac, n              (congestion notifications made by hand, from any address)
  events                                           -> events [{type, qpn}], the asynchronous ones since the last look
  counters                                         -> name: value (the port's hw_counters, of its attributes
           bad_pkey_cntr and qkey_viol_cntr, and "net ...": what IP, UDP and eth0 lost)
"""
import ctypes, ipaddress, json, os, select, socket, socketserver, struct, sys, threading, time, zlib
import pyverbs.enums as e
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.mr import MR, MW, MWBind, MWBindInfo
from pyverbs.cq import CQ
from pyverbs.srq import SRQ, SrqInitAttr, SrqAttr
from pyverbs.qp import QP, QPCap, QPInitAttr, QPAttr
from pyverbs.addr import AHAttr, GlobalRoute, AH, GID
from pyverbs.wr import SGE, SendWR, RecvWR

FULL = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC
TYPES = dict(rc=e.IBV_QPT_RC, uc=e.IBV_QPT_UC, ud=e.IBV_QPT_UD)
CODES = dict(send=e.IBV_WR_SEND, send_imm=e.IBV_WR_SEND_WITH_IMM, send_inv=e.IBV_WR_SEND_WITH_INV, write=e.IBV_WR_RDMA_WRITE,
             write_imm=e.IBV_WR_RDMA_WRITE_WITH_IMM, read=e.IBV_WR_RDMA_READ,
             fadd=e.IBV_WR_ATOMIC_FETCH_AND_ADD, cswap=e.IBV_WR_ATOMIC_CMP_AND_SWP)
FLAGS = dict(signaled=e.IBV_SEND_SIGNALED, solicited=e.IBV_SEND_SOLICITED, fence=e.IBV_SEND_FENCE,
             inline=e.IBV_SEND_INLINE)
# rxe tells programs of an invalidation by the kernel's IB_WC_WITH_INVALIDATE, 4, which is IBV_WC_IP_CSUM_OK to them.
INV = e.IBV_WC_WITH_INV | e.IBV_WC_IP_CSUM_OK
MTUS = {256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}


VERBS = ctypes.CDLL('libibverbs.so.1')


def gid(address):
    return GID(ipaddress.IPv6Address(address).packed.hex(':', 2))


def pointer(qp):
    """The struct ibv_qp of a queue pair, which pyverbs keeps to itself: the word of the object
    that points to a structure with the right qp_num."""
    heap = [[int(x, 16) for x in l.split()[0].split('-')] for l in open('/proc/self/maps') if ' rw' in l]
    for i in range(2, sys.getsizeof(qp) // 8):
        p = ctypes.c_uint64.from_address(id(qp) + 8 * i).value
        if p % 8 == 0 and any(a <= p and p + 56 <= b for a, b in heap) and ctypes.c_uint32.from_address(p + 52).value == qp.qp_num:
            return p
    raise RuntimeError('pyverbs keeps its ibv_qp elsewhere')


OPENING = threading.Lock()


def event_fds():
    d = '/proc/self/fd/'
    return {int(f) for f in os.listdir(d) if os.path.lexists(d + f) and 'infinibandevent' in os.readlink(d + f)}


class Endpoint:
    def __init__(self):
        with OPENING:  # pyverbs keeps its descriptor of asynchronous events to itself
            old = event_fds(); self.ctx = Context(name='rxe0'); self.async_fd = (event_fds() - old).pop()
        self.pd = PD(self.ctx); self.other = None; self.cq = CQ(self.ctx, 2048); self.cqs = []
        self.mrs, self.qps, self.srqs, self.types, self.keep, self.sockets = [], [], [], [], [], []
        self.ahs, self.wcs, self.replies, self.mws = {}, {}, [], []

    def hello(self, sgid=1):
        self.sgid = sgid
        return dict(gid=str(self.ctx.query_gid(1, sgid)))

    def mr(self, size, access=FULL, foreign=False):
        if foreign and not self.other: self.other = PD(self.ctx)
        m = MR(self.other if foreign else self.pd, size, access); self.mrs.append(m)
        return dict(mr=len(self.mrs) - 1, addr=m.buf, rkey=m.rkey, lkey=m.lkey)

    def dereg(self, mr):
        self.mrs[mr].close()

    def poke(self, mr, off, data):
        b = bytes.fromhex(data); self.mrs[mr].write(b, len(b), off)

    def peek(self, mr, off, len):
        return dict(data=self.mrs[mr].read(len, off).hex())

    def srq(self, max_wr=64, max_sge=4):
        self.srqs.append(SRQ(self.pd, SrqInitAttr(SrqAttr(max_wr=max_wr, max_sge=max_sge)))); return dict(srq=len(self.srqs) - 1)

    def srq_limit(self, srq, limit):
        self.srqs[srq].modify(SrqAttr(srq_limit=limit), e.IBV_SRQ_LIMIT)

    def use_cq(self, depth):
        self.cqs.append(self.cq); self.cq = CQ(self.ctx, depth)

    def qp(self, type='rc', srq=None, max_wr=128):
        i = QPInitAttr(qp_type=TYPES[type], scq=self.cq, rcq=self.cq, cap=QPCap(max_wr, max_wr, 32, 32), sq_sig_all=0,
                       srq=None if srq is None else self.srqs[srq])
        q = QP(self.pd, i); self.qps.append(q); self.types.append(type)
        return dict(qp=len(self.qps) - 1, qpn=q.qp_num)

    def ah(self, dgid, tclass=0, hop=64):
        return AHAttr(gr=GlobalRoute(dgid=gid(dgid), sgid_index=self.sgid, traffic_class=tclass, hop_limit=hop), is_global=1, port_num=1)

    def connect(self, qp, dest_qpn=0, dgid=None, rq_psn=0, sq_psn=0, mtu=1024, timeout=14, retry=7, rnr_retry=7,
                min_rnr=12, rd_atomic=4, dest_rd_atomic=None, qkey=0x11111111, access=FULL, rtr=False, tclass=0):
        q, t = self.qps[qp], self.types[qp]
        a = QPAttr(); a.port_num = 1; a.qkey = qkey
        if t != 'ud': a.qp_access_flags = access
        if not rtr: q.to_init(a)  # to_rtr does so itself
        if t != 'ud':
            a.path_mtu = MTUS[mtu]; a.dest_qp_num = dest_qpn; a.rq_psn = rq_psn; a.ah_attr = self.ah(dgid, tclass)
            if t == 'rc': a.max_dest_rd_atomic = rd_atomic if dest_rd_atomic is None else dest_rd_atomic; a.min_rnr_timer = min_rnr
        if rtr: return q.to_rtr(a)
        a.sq_psn = sq_psn
        if t == 'rc': a.timeout = timeout; a.retry_cnt = retry; a.rnr_retry = rnr_retry; a.max_rd_atomic = rd_atomic
        q.to_rts(a)

    def state(self, qp):
        a, _ = self.qps[qp].query(e.IBV_QP_STATE | e.IBV_QP_SQ_PSN | e.IBV_QP_RQ_PSN)
        return dict(state=int(a.qp_state), sq_psn=a.sq_psn, rq_psn=a.rq_psn)

    def modify(self, qp, to):
        a = QPAttr(); a.qp_state = dict(reset=e.IBV_QPS_RESET, sqd=e.IBV_QPS_SQD, err=e.IBV_QPS_ERR)[to]
        self.qps[qp].modify(a, e.IBV_QP_STATE)

    def destroy(self, qp):
        self.qps[qp].close()

    def sgl(self, m, off, length, pieces, twist):
        l = [SGE(m.buf + o, n, m.lkey ^ twist) for o, n in pieces or [(off, length)]]
        return dict(num_sge=len(l), sg=l)

    def recv(self, mr=0, off=0, len=0, id=0, qp=None, srq=None, pieces=None, twist=0):
        s = self.sgl(self.mrs[mr], off, len, pieces, twist)
        w = RecvWR(wr_id=id, **s); self.keep.append(w)
        self.srqs[srq].post_recv(w) if srq is not None else self.qps[qp].post_recv(w)

    def send(self, qp, code, mr=0, off=0, len=0, id=0, raddr=0, rkey=0, imm=0, add=0, compare=0, swap=0,
             flags=('signaled',), pieces=None, twist=0, dest_qpn=0, dgid=None, qkey=0x11111111, tclass=0, hop=64, ah=None):
        s = self.sgl(self.mrs[mr], off, len, pieces, twist); f = 0
        for x in flags: f |= FLAGS[x]
        w = SendWR(wr_id=id, opcode=CODES[code], **s, send_flags=f, imm_data=imm if code == 'send_inv' else socket.htonl(imm))
        if code in ('write', 'write_imm', 'read'): w.set_wr_rdma(rkey, raddr)
        if code == 'fadd': w.set_wr_atomic(rkey, raddr, add, 0)
        if code == 'cswap': w.set_wr_atomic(rkey, raddr, compare, swap)
        if self.types[qp] == 'ud':
            key = (dgid, tclass, hop)
            if ah is None and key not in self.ahs: self.ahs[key] = AH(self.pd, attr=self.ah(*key))
            w.set_wr_ud(ah or self.ahs[key], dest_qpn, qkey)
        self.keep.append(w); self.qps[qp].post_send(w)

    def mw(self, type):
        self.mws.append(MW(self.pd, type)); return dict(mw=len(self.mws) - 1, rkey=self.mws[-1].rkey)

    def bind(self, qp, mw, mr, off, len, access, id=0):
        m, w = self.mrs[mr], self.mws[mw]; i = MWBindInfo(m, m.buf + off, len, access)
        if w.type == e.IBV_MW_TYPE_1:
            b = MWBind(i, e.IBV_SEND_SIGNALED, id); self.qps[qp].bind_mw(w, b); key = w.rkey
        else:
            b = SendWR(wr_id=id, opcode=e.IBV_WR_BIND_MW, send_flags=e.IBV_SEND_SIGNALED); b.set_bind_wr(w, i)
            self.qps[qp].post_send(b); key = b.rkey
        self.keep += [i, b]
        return dict(rkey=key)

    def local_inv(self, qp, key, id=0):
        w = SendWR(wr_id=id, opcode=e.IBV_WR_LOCAL_INV, imm_data=key, send_flags=e.IBV_SEND_SIGNALED)
        self.keep.append(w); self.qps[qp].post_send(w)

    def dealloc(self, mw):
        self.mws[mw].close()

    def reply(self, wc, grh_mr, grh_off, **r):
        w = self.wcs[wc]
        ah = AH(self.pd, wc=w, grh=self.mrs[grh_mr].buf + grh_off, port_num=1); self.replies.append(ah)
        self.send(ah=ah, dest_qpn=w.src_qp, **r)

    def attach(self, qp, group, join=False):
        a = ipaddress.IPv6Address(group)
        if join:
            i = socket.if_nametoindex('eth0').to_bytes(4, sys.byteorder); four = a.ipv4_mapped
            s = socket.socket(socket.AF_INET if four else socket.AF_INET6, socket.SOCK_DGRAM); self.sockets.append(s)
            if four: s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, four.packed + bytes(4) + i)
            else: s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, a.packed + i)
        if x := VERBS.ibv_attach_mcast(ctypes.c_void_p(pointer(self.qps[qp])), a.packed, 0): raise OSError(x, os.strerror(x))

    def detach(self, qp, group):
        a = ipaddress.IPv6Address(group)
        if x := VERBS.ibv_detach_mcast(ctypes.c_void_p(pointer(self.qps[qp])), a.packed, 0): raise OSError(x, os.strerror(x))

    def together(self, calls):
        for r in calls: getattr(self, r.pop('op'))(**r)

    def poll(self, n=1, ms=5000):
        out, end = [], time.time() + ms / 1000
        while len(out) < n:
            k, ws = self.cq.poll(1)
            if not k:
                if time.time() >= end: break
                time.sleep(0.0003)  # the NIC is software on this same processor: let it run
            else:
                w = ws[0]; self.wcs[w.wr_id] = w
                out.append(dict(id=w.wr_id, status=int(w.status), opcode=int(w.opcode), len=w.byte_len,
                                vendor=w.vendor_err, imm=w.imm_data if w.wc_flags & INV else socket.ntohl(w.imm_data), qpn=w.qp_num, flags=int(w.wc_flags), src=w.src_qp))
        return dict(wc=out)

    def cnp(self, dest_qpn, src, dst, mac, n=1):
        """IBA Annex A17.9.3, and 9.2.11 and A17.3.3 for the ICRC: what may change on the way counts as ones."""
        src, dst = ipaddress.ip_address(src), ipaddress.ip_address(dst)
        bth = struct.pack('!BBHII', 0x81, 0x40, 0xffff, 1 << 30 | dest_qpn, 0) + bytes(16)
        udp = lambda s: struct.pack('!HHHH', 49152 + dest_qpn % 16384, 4791, 8 + len(bth) + 4, s)
        if src.version == 4:
            ip = lambda tos, ttl, s: struct.pack('!BBHHHBBH4s4s', 0x45, tos, 20 + 8 + len(bth) + 4, 0, 0x4000, ttl, 17, s, src.packed, dst.packed)
            words = struct.unpack('!10H', ip(0xc2, 64, 0)); s = sum(words); s = (s & 0xffff) + (s >> 16); s = (s & 0xffff) + (s >> 16)
            head, masked, kind = ip(0xc2, 64, 0xffff ^ s), ip(255, 255, 0xffff), 0x0800
        else:
            ip = lambda flow, hop: struct.pack('!IHBB16s16s', 6 << 28 | flow, 8 + len(bth) + 4, 17, hop, src.packed, dst.packed)
            head, masked, kind = ip(0xc2 << 20, 64), ip(0xfffffff, 255), 0x86dd
        icrc = zlib.crc32(b'\xff' * 8 + masked + udp(0xffff) + bth[:4] + b'\xff' + bth[5:])
        check = 0
        if src.version == 6:
            b = src.packed + dst.packed + struct.pack('!II', 8 + len(bth) + 4, 17) + udp(0) + bth + struct.pack('<I', icrc)
            s = sum(struct.unpack(f'!{len(b) // 2}H', b))
            while s >> 16: s = (s & 0xffff) + (s >> 16)
            check = 0xffff ^ s or 0xffff
        own = open('/sys/class/net/eth0/address').read().strip()
        frame = bytes.fromhex((mac + own).replace(':', '')) + struct.pack('!H', kind) + head + udp(check) + bth + struct.pack('<I', icrc)
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as s:
            s.bind(('eth0', 0))
            for _ in range(n): s.send(frame); time.sleep(0.0001)

    def events(self):
        """As ibv_get_async_event and ibv_ack_async_event do. An event has the address of what it is about; a
        queue pair's number is 52 octets into it."""
        out = []
        while select.select([self.async_fd], [], [], 0)[0]:
            element, kind, _ = struct.unpack('QII', os.read(self.async_fd, 16))
            of_qp = kind in (e.IBV_EVENT_QP_FATAL, e.IBV_EVENT_QP_REQ_ERR, e.IBV_EVENT_QP_ACCESS_ERR, e.IBV_EVENT_COMM_EST,
                             e.IBV_EVENT_SQ_DRAINED, e.IBV_EVENT_QP_LAST_WQE_REACHED)
            out.append(dict(type=kind, qpn=ctypes.c_uint32.from_address(element + 52).value if of_qp else 0))
            VERBS.ibv_ack_async_event(struct.pack('Qi4x', element, kind))
        return dict(events=out)

    def close(self):  # windows first: one of rxe holds the queue pair that bound it
        with OPENING:  # a descriptor that is closed while another endpoint looks for its own may have that number
            for x in self.mws + self.qps + self.sockets + list(self.ahs.values()) + self.replies + self.srqs + self.mrs + self.cqs + [self.cq, self.pd, self.other, self.ctx]:
                if x: x.close()

    def counters(self):
        d = '/sys/class/infiniband/rxe0/ports/1/hw_counters'
        a = self.ctx.query_port(1)
        c = dict({n: int(open(f'{d}/{n}').read()) for n in os.listdir(d)}, bad_pkey_cntr=a.bad_pkey_cntr, qkey_viol_cntr=a.qkey_viol_cntr)
        for n in ('rx_dropped', 'tx_dropped', 'rx_errors', 'tx_errors'):
            c['net eth0 ' + n] = int(open('/sys/class/net/eth0/statistics/' + n).read())
        rows = [l.split() for l in open('/proc/net/snmp')]
        for names, values in zip(rows[::2], rows[1::2]):
            for n, v in zip(names, values):
                if names[0] in ('Ip:', 'Udp:') and n in ('RcvbufErrors', 'SndbufErrors', 'InDiscards', 'OutDiscards'):
                    c[f'net {names[0][:-1]} {n}'] = int(v)
        return c


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        ep = Endpoint()
        try:
            self.serve(ep)
        except OSError:  # the driver went away
            pass
        finally:
            ep.close()

    def serve(self, ep):
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for line in self.rfile:
            try:
                r = json.loads(line); out = getattr(ep, r.pop('op'))(**r) or {}
                out['ok'] = True
            except Exception as x:  # the test on the other side decides what an error means
                out = dict(ok=False, error=f'{type(x).__name__}: {x}')
            self.wfile.write((json.dumps(out) + '\n').encode())


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True


if __name__ == '__main__':
    Server(('0.0.0.0', int(sys.argv[1]) if len(sys.argv) > 1 else 7001), Handler).serve_forever()
