/*
 * The protocol of rxed's verbs socket and the layout of the rings, for C.
 * docs/control.md and docs/rings.md explain both. All numbers are little-endian.
 */
#ifndef RXED_H
#define RXED_H

#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the protocol is little-endian"
#endif

#define RXED_SOCKET "/run/rxed/verbs.sock"
#define RXED_MAGIC 0x64657872u
#define RXED_VERSION_MAJOR 1
#define RXED_VERSION_MINOR 0
#define RXED_MAX_MESSAGE 65536

enum rxed_op {
	RXED_HELLO = 1,
	RXED_QUERY_DEVICE = 2,
	RXED_QUERY_PORT = 3,
	RXED_GIDS = 4,
	RXED_CHOOSE_GID = 5,
	RXED_COUNTERS = 6,
	RXED_ALLOC_PD = 16,
	RXED_REG_MR = 17,
	RXED_ALLOC_MW = 18,
	RXED_CREATE_CQ = 19,
	RXED_CREATE_SRQ = 20,
	RXED_MODIFY_SRQ = 21,
	RXED_QUERY_SRQ = 22,
	RXED_CREATE_AH = 23,
	RXED_CREATE_QP = 24,
	RXED_MODIFY_QP = 25,
	RXED_QUERY_QP = 26,
	RXED_ATTACH_MCAST = 27,
	RXED_DETACH_MCAST = 28,
	RXED_DESTROY = 29,
	RXED_WAKE = 48,
	RXED_EVENT = 64,
	RXED_REPLY = 0x8000
};

/* kind of handle_req */
enum { RXED_PD = 1, RXED_MR, RXED_CQ, RXED_QP, RXED_SRQ, RXED_AH, RXED_MW };

/* by of hello */
enum { RXED_BY_ANY, RXED_BY_NAME, RXED_BY_INTERFACE, RXED_BY_ADDR };

/* A ring, docs/rings.md: control words, then units of 64 octets. */
#define RXED_RING_PRODUCER 0
#define RXED_RING_CONSUMER 64
#define RXED_RING_FLAGS 128
#define RXED_RING_NOTES 132
#define RXED_RING_UNITS 192
#define RXED_UNIT 64
#define RXED_CQ_ARMED 1

struct rxed_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

struct rxed_send_wqe {
	uint8_t opcode; /* as ibv_wr_opcode */
	uint8_t flags;	/* as ibv_send_flags */
	uint8_t num_sge;
	uint8_t units;
	uint32_t inline_len;
	uint64_t wr_id;
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t imm;
	uint64_t compare_add;
	uint64_t swap;
	uint32_t remote_qpn;
	uint32_t remote_qkey;
	uint32_t ah;
	uint32_t cookie;
	struct rxed_sge sge[]; /* or inline data */
};
_Static_assert(sizeof(struct rxed_send_wqe) == RXED_UNIT, "layout");

struct rxed_recv_wqe {
	uint32_t num_sge;
	uint32_t cookie;
	uint64_t wr_id;
	struct rxed_sge sge[];
};
_Static_assert(sizeof(struct rxed_recv_wqe) == 16, "layout");

struct rxed_cqe {
	uint64_t wr_id;
	uint8_t status; /* as ibv_wc_status */
	uint8_t opcode; /* as ibv_wc_opcode */
	uint8_t flags;
	uint8_t reason;
	uint32_t vendor_err;
	uint32_t byte_len;
	uint32_t imm;
	uint32_t qpn;
	uint32_t src_qp;
	uint32_t cookie;
	uint32_t zero[7];
};
_Static_assert(sizeof(struct rxed_cqe) == RXED_UNIT, "layout");

/* One for each shard, one behind another, in the memfd of HELLO's answer. */
struct rxed_bell_block {
	uint32_t asleep;
	uint32_t zero[15];
	uint64_t top;
	uint64_t zero2[7];
	uint64_t mid[64];
	uint64_t leaf[4096];
};
_Static_assert(sizeof(struct rxed_bell_block) == 33408, "layout");

/* layout: go test ./control -run TestLayout -update */

/* begins every message */
struct rxed_header {
	uint32_t len;
	uint16_t op;
	uint16_t status;
	uint32_t tag;
	uint32_t zero;
};
_Static_assert(sizeof(struct rxed_header) == 16, "layout");

/* HELLO */
struct rxed_hello {
	uint32_t magic;
	uint16_t major;
	uint16_t minor;
	uint32_t by;
	uint32_t same_netns;
	uint8_t want[64];
};
_Static_assert(sizeof(struct rxed_hello) == 80, "layout");

/* answer to HELLO, with the memfd of the bell blocks */
struct rxed_hello_reply {
	uint16_t major;
	uint16_t minor;
	uint32_t shards;
	uint64_t bell_bytes;
	uint32_t client_id;
	uint32_t pid;
	uint8_t device[32];
	uint8_t net_dev[32];
};
_Static_assert(sizeof(struct rxed_hello_reply) == 88, "layout");

/* answer to QUERY_DEVICE; text follows, a line for each thing that the device goes without */
struct rxed_device_reply {
	uint64_t node_guid;
	uint64_t max_mr_size;
	uint32_t vendor_id;
	uint32_t max_qp;
	uint32_t max_qp_wr;
	uint32_t max_sge;
	uint32_t max_cq;
	uint32_t max_cqe;
	uint32_t max_mr;
	uint32_t max_mw;
	uint32_t max_pd;
	uint32_t max_qp_rd_atom;
	uint32_t max_init_rd_atom;
	uint32_t max_srq;
	uint32_t max_srq_wr;
	uint32_t max_ah;
	uint32_t max_mcast_grp;
	uint32_t max_mcast_qp;
	uint32_t ack_delay;
	uint32_t phys_ports;
	uint32_t shards;
	uint32_t atomic_hca;
	uint8_t name[32];
	uint8_t fw_ver[16];
	uint8_t link[16];
	uint8_t icrc[96];
};
_Static_assert(sizeof(struct rxed_device_reply) == 256, "layout");

/* answer to QUERY_PORT */
struct rxed_port_reply {
	uint32_t active;
	uint32_t max_mtu;
	uint32_t active_mtu;
	uint32_t gid_tbl_len;
	uint32_t pkey_tbl_len;
	uint32_t net_mtu;
	uint32_t speed_mbit;
	uint32_t zero;
	uint8_t state[32];
	uint8_t link_layer[32];
	uint8_t net_dev[32];
};
_Static_assert(sizeof(struct rxed_port_reply) == 128, "layout");

/* answer to GIDS, one for each entry of the table */
struct rxed_gid_reply {
	uint32_t index;
	uint32_t zero;
	uint8_t gid[16];
	uint8_t type[16];
	uint8_t interface[32];
};
_Static_assert(sizeof(struct rxed_gid_reply) == 72, "layout");

/* CHOOSE_GID: an address as text */
struct rxed_choose_gid_req {
	uint8_t peer[64];
};
_Static_assert(sizeof(struct rxed_choose_gid_req) == 64, "layout");

/* answer to CHOOSE_GID */
struct rxed_choose_gid_reply {
	uint32_t index;
	uint32_t zero;
};
_Static_assert(sizeof(struct rxed_choose_gid_reply) == 8, "layout");

/* answer to ALLOC_PD and CREATE_AH */
struct rxed_handle_reply {
	uint32_t handle;
	uint32_t zero;
};
_Static_assert(sizeof(struct rxed_handle_reply) == 8, "layout");

/* REG_MR; access as ibv_access_flags */
struct rxed_reg_mr_req {
	uint32_t pd;
	uint32_t access;
	uint64_t len;
	uint64_t iova;
};
_Static_assert(sizeof(struct rxed_reg_mr_req) == 24, "layout");

/* answer to REG_MR, with a memfd */
struct rxed_reg_mr_reply {
	uint32_t handle;
	uint32_t lkey;
	uint32_t rkey;
	uint32_t zero;
	uint64_t map_bytes;
};
_Static_assert(sizeof(struct rxed_reg_mr_reply) == 24, "layout");

/* ALLOC_MW; type 1 or 2 */
struct rxed_alloc_mw_req {
	uint32_t pd;
	uint32_t type;
};
_Static_assert(sizeof(struct rxed_alloc_mw_req) == 8, "layout");

/* answer to ALLOC_MW */
struct rxed_alloc_mw_reply {
	uint32_t handle;
	uint32_t rkey;
};
_Static_assert(sizeof(struct rxed_alloc_mw_reply) == 8, "layout");

/* CREATE_CQ; vector is a shard */
struct rxed_create_cq_req {
	uint32_t depth;
	uint32_t vector;
};
_Static_assert(sizeof(struct rxed_create_cq_req) == 8, "layout");

/* answer to CREATE_CQ and CREATE_SRQ, with a memfd */
struct rxed_ring_reply {
	uint32_t handle;
	uint32_t zero;
	uint64_t ring_bytes;
	uint64_t map_bytes;
};
_Static_assert(sizeof(struct rxed_ring_reply) == 24, "layout");

/* CREATE_SRQ */
struct rxed_create_srq_req {
	uint32_t pd;
	uint32_t max_wr;
	uint32_t max_sge;
	uint32_t zero;
};
_Static_assert(sizeof(struct rxed_create_srq_req) == 16, "layout");

/* MODIFY_SRQ and QUERY_SRQ */
struct rxed_limit_req {
	uint32_t handle;
	uint32_t limit;
};
_Static_assert(sizeof(struct rxed_limit_req) == 8, "layout");

/* answer to QUERY_SRQ */
struct rxed_limit_reply {
	uint32_t limit;
	uint32_t zero;
};
_Static_assert(sizeof(struct rxed_limit_reply) == 8, "layout");

/* an address vector; static_rate as ibv_rate */
struct rxed_av {
	uint8_t dgid[16];
	uint32_t sgid_index;
	uint32_t flow_label;
	uint8_t traffic_class;
	uint8_t ttl;
	uint8_t sl;
	uint8_t static_rate;
	uint32_t zero;
};
_Static_assert(sizeof(struct rxed_av) == 32, "layout");

/* CREATE_AH */
struct rxed_create_ah_req {
	uint32_t pd;
	uint32_t zero;
	struct rxed_av av;
};
_Static_assert(sizeof(struct rxed_create_ah_req) == 40, "layout");

/* CREATE_QP; type as ibv_qp_type; 0 in a capacity is a default; srq 0 is none */
struct rxed_create_qp_req {
	uint32_t pd;
	uint32_t send_cq;
	uint32_t recv_cq;
	uint32_t srq;
	uint32_t type;
	uint32_t sig_all;
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline;
	uint32_t zero;
};
_Static_assert(sizeof(struct rxed_create_qp_req) == 48, "layout");

/* answer to CREATE_QP, with a memfd: the send ring at 0, the receive ring at recv_at */
struct rxed_create_qp_reply {
	uint32_t handle;
	uint32_t qpn;
	uint32_t psn;
	uint32_t max_datagram;
	uint32_t shard;
	uint32_t bell;
	uint64_t send_bytes;
	uint64_t recv_bytes;
	uint64_t recv_at;
	uint64_t map_bytes;
};
_Static_assert(sizeof(struct rxed_create_qp_reply) == 56, "layout");

/* states as ibv_qp_state; path_mtu in octets, rate_limit in kb/s; answer to QUERY_QP, followed by named counters */
struct rxed_qp_attr {
	uint32_t state;
	uint32_t cur_state;
	uint32_t path_mtu;
	uint32_t dest_qpn;
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint32_t access;
	uint32_t pkey_index;
	uint32_t port;
	uint32_t qkey;
	uint32_t max_rd_atomic;
	uint32_t max_dest_rd_atomic;
	uint8_t min_rnr_timer;
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint32_t flow_control;
	struct rxed_av av;
	uint32_t rate_limit;
};
_Static_assert(sizeof(struct rxed_qp_attr) == 92, "layout");

/* MODIFY_QP; mask as ibv_qp_attr_mask */
struct rxed_modify_qp_req {
	uint32_t handle;
	uint32_t mask;
	struct rxed_qp_attr attr;
};
_Static_assert(sizeof(struct rxed_modify_qp_req) == 100, "layout");

/* DESTROY; QUERY_QP, where kind means nothing */
struct rxed_handle_req {
	uint32_t handle;
	uint32_t kind;
};
_Static_assert(sizeof(struct rxed_handle_req) == 8, "layout");

/* ATTACH_MCAST and DETACH_MCAST */
struct rxed_mcast_req {
	uint32_t handle;
	uint32_t zero;
	uint8_t group[16];
};
_Static_assert(sizeof(struct rxed_mcast_req) == 24, "layout");

/* WAKE, which has no answer */
struct rxed_wake_req {
	uint32_t shard;
	uint32_t zero;
};
_Static_assert(sizeof(struct rxed_wake_req) == 8, "layout");

/* EVENT; type as ibv_event_type */
struct rxed_event {
	uint32_t type;
	uint32_t qpn;
	uint32_t cq;
	uint32_t srq;
};
_Static_assert(sizeof(struct rxed_event) == 16, "layout");

/* end of layout */

#endif
