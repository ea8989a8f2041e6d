/*
 * rxedemo: a program that uses a device of rxed without any library.
 *
 *   rxedemo SOCKET GID ROUNDS
 *
 * It attaches, makes a queue pair and prints "QPN PSN RKEY ADDR", a line, in
 * decimal. It reads the peer's "QPN PSN" and connects. Then, ROUNDS times, it
 * sends 4096 octets and receives 4096, and checks that what comes back is what it
 * sent with every bit turned. It waits for completions by looking in even rounds,
 * and sleeps in odd ones. GID is the peer's, as 32 hexadecimal digits.
 *
 * cc -std=c11 -O2 -o rxedemo rxedemo.c
 */
#define _GNU_SOURCE
#include "rxed.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 4096, DEPTH = 16 };

static int sock;
static uint32_t last_tag;

static void die(const char *what)
{
	fprintf(stderr, "rxedemo: %s: %s\n", what, errno ? strerror(errno) : "wrong");
	exit(1);
}

static uint64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* The words that both sides use. */
static _Atomic uint32_t *word(void *mem, size_t at)
{
	return (_Atomic uint32_t *)((char *)mem + at);
}

/* send_msg sends one message: a header and a body. */
static void send_msg(uint16_t op, const void *body, size_t len)
{
	char buf[1024] = {0};
	struct rxed_header h = {.len = (uint32_t)(sizeof h + len), .op = op, .tag = ++last_tag};
	memcpy(buf, &h, sizeof h);
	if (len)
		memcpy(buf + sizeof h, body, len);
	if (send(sock, buf, h.len, MSG_NOSIGNAL) != (ssize_t)h.len)
		die("send");
}

/*
 * call asks for something and waits for the answer, whose body goes to out. The
 * answer's descriptor, if it has one, is returned, -1 otherwise. Events on the way
 * are printed.
 */
static int call(uint16_t op, const void *body, size_t len, void *out, size_t outlen)
{
	static char buf[RXED_MAX_MESSAGE];
	send_msg(op, body, len);
	for (;;) {
		_Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
		struct iovec v = {buf, sizeof buf};
		struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
		ssize_t n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
		struct rxed_header h;
		int fd = -1;
		if (n < (ssize_t)sizeof h)
			die(n ? "recvmsg" : "the daemon hung up");
		memcpy(&h, buf, sizeof h);
		for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
			if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
				memcpy(&fd, CMSG_DATA(c), sizeof fd);
		if (h.op == RXED_EVENT) {
			struct rxed_event e;
			memcpy(&e, buf + sizeof h, sizeof e);
			fprintf(stderr, "rxedemo: event %u of queue pair %#x\n", e.type, e.qpn);
			continue;
		}
		if (h.tag != last_tag || h.op != (op | RXED_REPLY))
			die("an answer to something else");
		if (h.status) {
			fprintf(stderr, "rxedemo: operation %u: status %u: %.*s\n", op, h.status, (int)(n - (ssize_t)sizeof h), buf + sizeof h);
			exit(1);
		}
		if (n - (ssize_t)sizeof h < (ssize_t)outlen)
			die("an answer that is too short");
		if (outlen)
			memcpy(out, buf + sizeof h, outlen);
		return fd;
	}
}

/* map maps shared memory that came with an answer. */
static char *map(int fd, uint64_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		die("mmap");
	close(fd);
	return p;
}

static struct rxed_bell_block *bells;

/* ring sets the bit of a queue pair, and those above it when the word was 0. */
static void ring(uint32_t shard, uint32_t bell)
{
	struct rxed_bell_block *b = &bells[shard];
	uint32_t w = bell / 64, one = 1;
	if (atomic_fetch_or((_Atomic uint64_t *)&b->leaf[w], UINT64_C(1) << bell % 64) == 0 &&
	    atomic_fetch_or((_Atomic uint64_t *)&b->mid[w / 64], UINT64_C(1) << w % 64) == 0)
		atomic_fetch_or((_Atomic uint64_t *)&b->top, UINT64_C(1) << w / 64);
	if (atomic_compare_exchange_strong((_Atomic uint32_t *)&b->asleep, &one, 0)) {
		struct rxed_wake_req wake = {.shard = shard};
		send_msg(RXED_WAKE, &wake, sizeof wake);
	}
}

static char *cq;
static uint32_t cq_units, cq_next;

/* take takes a completion, if there is one. */
static int take(struct rxed_cqe *e)
{
	if (atomic_load_explicit(word(cq, RXED_RING_PRODUCER), memory_order_acquire) == cq_next)
		return 0;
	memcpy(e, cq + RXED_RING_UNITS + (cq_next & (cq_units - 1)) * RXED_UNIT, sizeof *e);
	atomic_store_explicit(word(cq, RXED_RING_CONSUMER), ++cq_next, memory_order_release);
	return 1;
}

/* wait_cqe waits for a completion: it looks, or arms the queue, looks once more,
 * and sleeps until the daemon has changed the word of notifications. */
static void wait_cqe(struct rxed_cqe *e, int sleep)
{
	uint64_t end = now_ms() + 10000;
	while (!take(e)) {
		if (now_ms() > end)
			die("no completion within 10 s");
		if (!sleep)
			continue;
		_Atomic uint32_t *notes = word(cq, RXED_RING_NOTES);
		uint32_t seen = atomic_load(notes);
		atomic_fetch_or(word(cq, RXED_RING_FLAGS), RXED_CQ_ARMED);
		if (take(e))
			break;
		struct timespec second = {.tv_sec = 1};
		syscall(SYS_futex, notes, FUTEX_WAIT, seen, &second, NULL, 0);
	}
	if (e->status) {
		fprintf(stderr, "rxedemo: request %llu: status %u, reason %u\n", (unsigned long long)e->wr_id, e->status, e->reason);
		exit(1);
	}
}

static char *sq, *rq;
static uint32_t sq_units, rq_units, rq_stride, sq_next, rq_next;

/* unit returns a unit of a ring. A work request may wrap around the ring's end
 * between units; with one entry it is two units here, and rings have even numbers. */
static char *unit(char *r, uint32_t units, uint32_t i)
{
	return r + RXED_RING_UNITS + (i & (units - 1)) * RXED_UNIT;
}

static void post_recv(uint64_t id, struct rxed_sge sge)
{
	struct rxed_recv_wqe *w = (void *)unit(rq, rq_units, rq_next);
	*w = (struct rxed_recv_wqe){.num_sge = 1, .wr_id = id};
	w->sge[0] = sge;
	rq_next += rq_stride;
	atomic_store_explicit(word(rq, RXED_RING_PRODUCER), rq_next, memory_order_release);
}

static void post_send(uint64_t id, struct rxed_sge sge, const struct rxed_create_qp_reply *qp)
{
	struct rxed_send_wqe *w = (void *)unit(sq, sq_units, sq_next);
	*w = (struct rxed_send_wqe){.opcode = 2, .flags = 2, .num_sge = 1, .units = 2, .wr_id = id};
	memcpy(unit(sq, sq_units, sq_next + 1), &sge, sizeof sge);
	sq_next += w->units;
	atomic_store_explicit(word(sq, RXED_RING_PRODUCER), sq_next, memory_order_release);
	ring(qp->shard, qp->bell);
}

/* modify takes the queue pair to a state; mask as ibv_qp_attr_mask. */
static void modify(uint32_t qp, uint32_t mask, struct rxed_qp_attr a)
{
	struct rxed_modify_qp_req r = {.handle = qp, .mask = mask, .attr = a};
	call(RXED_MODIFY_QP, &r, sizeof r, NULL, 0);
}

static void attach(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct rxed_hello h = {.magic = RXED_MAGIC, .major = RXED_VERSION_MAJOR, .minor = RXED_VERSION_MINOR};
	struct rxed_hello_reply r;
	sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
	if (sock < 0 || connect(sock, (struct sockaddr *)&a, sizeof a))
		die(path);
	int fd = call(RXED_HELLO, &h, sizeof h, &r, sizeof r);
	bells = (void *)map(fd, r.bell_bytes);
	fprintf(stderr, "rxedemo: %.32s on %.32s, process %u\n", (char *)r.device, (char *)r.net_dev, r.pid);
}

int main(int argc, char **argv)
{
	if (argc != 4 || strlen(argv[2]) != 32) {
		fprintf(stderr, "usage: rxedemo SOCKET GID ROUNDS\n");
		return 2;
	}
	attach(argv[1]);

	struct rxed_handle_reply pd;
	call(RXED_ALLOC_PD, NULL, 0, &pd, sizeof pd);

	/* Memory that both sides see. Its addresses begin at 0x10000, as is said here. */
	const uint64_t base = 0x10000;
	struct rxed_reg_mr_req reg = {.pd = pd.handle, .access = 0xf, .len = 2 * SIZE, .iova = base};
	struct rxed_reg_mr_reply mr;
	int fd = call(RXED_REG_MR, &reg, sizeof reg, &mr, sizeof mr);
	char *mem = map(fd, mr.map_bytes);

	struct rxed_create_cq_req ccq = {.depth = DEPTH};
	struct rxed_ring_reply rcq;
	fd = call(RXED_CREATE_CQ, &ccq, sizeof ccq, &rcq, sizeof rcq);
	cq = map(fd, rcq.map_bytes);
	cq_units = (uint32_t)((rcq.ring_bytes - RXED_RING_UNITS) / RXED_UNIT);

	struct rxed_create_qp_req cqp = {
		.pd = pd.handle, .send_cq = rcq.handle, .recv_cq = rcq.handle, .type = 2, /* RC */
		.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1,
	};
	struct rxed_create_qp_reply qp;
	fd = call(RXED_CREATE_QP, &cqp, sizeof cqp, &qp, sizeof qp);
	sq = map(fd, qp.map_bytes);
	rq = sq + qp.recv_at;
	sq_units = (uint32_t)((qp.send_bytes - RXED_RING_UNITS) / RXED_UNIT);
	rq_units = (uint32_t)((qp.recv_bytes - RXED_RING_UNITS) / RXED_UNIT);
	rq_stride = (sizeof(struct rxed_recv_wqe) + sizeof(struct rxed_sge) + RXED_UNIT - 1) / RXED_UNIT;

	/* A receive request is there before the peer can send. */
	struct rxed_sge in = {base + SIZE, SIZE, mr.lkey}, out = {base, SIZE, mr.lkey};
	post_recv(1, in);
	printf("%u %u %u %llu\n", qp.qpn, qp.psn, mr.rkey, (unsigned long long)base);
	fflush(stdout);
	struct rxed_av av = {0};
	uint32_t peer_qpn, peer_psn;
	for (int i = 0; i < 16; i++) {
		unsigned octet;
		if (sscanf(argv[2] + 2 * i, "%2x", &octet) != 1)
			die("GID");
		av.dgid[i] = (uint8_t)octet;
	}
	if (scanf("%u %u", &peer_qpn, &peer_psn) != 2)
		die("the peer's numbers");
	modify(qp.handle, 0x39, (struct rxed_qp_attr){.state = 1 /* INIT */, .port = 1, .access = 0xf});
	modify(qp.handle, 0x129181,
	       (struct rxed_qp_attr){.state = 2 /* RTR */, .path_mtu = 1024, .dest_qpn = peer_qpn, .rq_psn = peer_psn,
				     .max_dest_rd_atomic = 1, .min_rnr_timer = 12, .av = av});
	modify(qp.handle, 0x12e01,
	       (struct rxed_qp_attr){.state = 3 /* RTS */, .sq_psn = qp.psn, .max_rd_atomic = 1, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7});

	for (int i = 0, rounds = atoi(argv[3]); i < rounds; i++) {
		for (int k = 0; k < SIZE; k++)
			mem[k] = (char)(i * 31 + k * 7 + (k >> 8));
		post_send(2, out, &qp);
		for (int done = 0; done < 2; done++) {
			struct rxed_cqe e;
			wait_cqe(&e, i & 1);
			if (e.wr_id == 1 && e.byte_len != SIZE)
				die("length");
		}
		for (int k = 0; k < SIZE; k++)
			if ((mem[SIZE + k] ^ mem[k]) != -1)
				die("data");
		post_recv(1, in);
	}
	printf("ok\n");

	/* What is not destroyed is when the socket closes. */
	struct rxed_handle_req d = {.handle = qp.handle, .kind = RXED_QP};
	call(RXED_DESTROY, &d, sizeof d, NULL, 0);
	return 0;
}
