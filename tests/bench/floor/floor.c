/* The floor of an ADD and of a DEL: one static process that sends the raw netlink messages and
 * nothing else: no JSON, no RPC, no daemon, no files.
 *
 *   floor add NETNS HOSTIF ADDRESS TABLE   veth into the namespace, pod side, host side
 *   floor del ADDRESS TABLE                the two rules
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fib_rules.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char buf[4096];
static size_t len;
static int messages;
static struct nlmsghdr *open_message;

static void die(const char *what) {
    fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void *put(const void *data, size_t size) {
    void *at = buf + len;
    memset(at, 0, NLMSG_ALIGN(size));
    if (data) memcpy(at, data, size);
    len += NLMSG_ALIGN(size);
    return at;
}

static void message(int type, int flags, const void *header, size_t size) {
    open_message = put(NULL, sizeof *open_message);
    open_message->nlmsg_type = type;
    open_message->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    open_message->nlmsg_seq = ++messages;
    put(header, size);
}

static struct rtattr *attr(int type, const void *data, size_t size) {
    struct rtattr *rta = put(NULL, sizeof *rta);
    rta->rta_type = type;
    rta->rta_len = RTA_LENGTH(size);
    if (size) put(data, size);
    return rta;
}

static void close_attr(struct rtattr *rta) { rta->rta_len = buf + len - (char *)rta; }
static void done(void) { open_message->nlmsg_len = buf + len - (char *)open_message; }

static int route_socket(void) {
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0) die("socket");
    return fd;
}

/* Sends all messages at once and waits for every answer. */
static void flush(int fd, const char *what) {
    char answer[16384];
    if (send(fd, buf, len, 0) < 0) die(what);
    for (int seen = 0; seen < messages;) {
        ssize_t got = recv(fd, answer, sizeof answer, 0);
        if (got < 0) die(what);
        int left = (int)got;
        for (struct nlmsghdr *h = (void *)answer; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
            if (h->nlmsg_type != NLMSG_ERROR) continue;
            seen++;
            int error = ((struct nlmsgerr *)NLMSG_DATA(h))->error;
            if (error) {
                errno = -error;
                die(what);
            }
        }
    }
    len = 0;
    messages = 0;
}

static void rule(int type, int flags, unsigned pref, int which, struct in_addr ip, unsigned table) {
    struct fib_rule_hdr h = {.family = AF_INET, .action = FR_ACT_TO_TBL};
    if (which == FRA_DST) h.dst_len = 32; else h.src_len = 32;
    message(type, flags, &h, sizeof h);
    attr(FRA_PRIORITY, &pref, 4);
    attr(which, &ip, 4);
    attr(FRA_TABLE, &table, 4);
    done();
}

static void route(unsigned index, const struct in_addr *dst, const struct in_addr *via) {
    struct rtmsg r = {.rtm_family = AF_INET, .rtm_dst_len = dst ? 32 : 0,
                      .rtm_table = RT_TABLE_MAIN, .rtm_protocol = RTPROT_BOOT,
                      .rtm_scope = via ? RT_SCOPE_UNIVERSE : RT_SCOPE_LINK, .rtm_type = RTN_UNICAST};
    message(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &r, sizeof r);
    if (dst) attr(RTA_DST, dst, 4);
    if (via) attr(RTA_GATEWAY, via, 4);
    attr(RTA_OIF, &index, 4);
    done();
}

static void add(char **arg) {
    unsigned char mac[6] = {2};
    unsigned table = (unsigned)atoi(arg[3]), mtu = 9001, ours = 1000000 + getpid(), theirs = 2;
    struct in_addr ip, gateway = {htonl(0xa9fe0101)};
    if (!inet_aton(arg[2], &ip)) die(arg[2]);
    memcpy(mac + 2, &ip, 4);
    int pod = open(arg[0], O_RDONLY | O_CLOEXEC);
    int host = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (pod < 0 || host < 0) die(arg[0]);
    int fd = route_socket();

    struct ifinfomsg link = {.ifi_index = (int)ours, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
    message(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &link, sizeof link);
    attr(IFLA_IFNAME, arg[1], strlen(arg[1]) + 1);
    attr(IFLA_ADDRESS, mac, 6);
    attr(IFLA_MTU, &mtu, 4);
    struct rtattr *info = attr(IFLA_LINKINFO, NULL, 0);
    attr(IFLA_INFO_KIND, "veth", 4);
    struct rtattr *data = attr(IFLA_INFO_DATA, NULL, 0);
    struct rtattr *peer = attr(VETH_INFO_PEER, NULL, 0);
    struct ifinfomsg inner = {.ifi_index = (int)theirs};
    put(&inner, sizeof inner);
    attr(IFLA_IFNAME, "eth0", 5);
    attr(IFLA_MTU, &mtu, 4);
    attr(IFLA_NET_NS_FD, &pod, 4);
    close_attr(peer);
    close_attr(data);
    close_attr(info);
    done();
    flush(fd, "create veth");

    if (setns(pod, CLONE_NEWNET)) die("setns");
    int inside = route_socket();
    if (setns(host, CLONE_NEWNET)) die("setns back");
    struct ifinfomsg up = {.ifi_index = (int)theirs, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
    message(RTM_NEWLINK, 0, &up, sizeof up);
    done();
    struct ifaddrmsg a = {.ifa_family = AF_INET, .ifa_prefixlen = 32, .ifa_index = theirs};
    message(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &a, sizeof a);
    attr(IFA_LOCAL, &ip, 4);
    attr(IFA_ADDRESS, &ip, 4);
    done();
    route(theirs, &gateway, NULL);
    route(theirs, NULL, &gateway);
    struct ndmsg n = {.ndm_family = AF_INET, .ndm_ifindex = (int)theirs, .ndm_state = NUD_PERMANENT};
    message(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, &n, sizeof n);
    attr(NDA_DST, &gateway, 4);
    attr(NDA_LLADDR, mac, 6);
    done();
    flush(inside, "pod side");

    route(ours, &ip, NULL);
    rule(RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, 512, FRA_DST, ip, RT_TABLE_MAIN);
    rule(RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, 1536, FRA_SRC, ip, table);
    flush(fd, "host side");
}

static void del(char **arg) {
    struct in_addr ip;
    if (!inet_aton(arg[0], &ip)) die(arg[0]);
    int fd = route_socket();
    rule(RTM_DELRULE, 0, 512, FRA_DST, ip, RT_TABLE_MAIN);
    rule(RTM_DELRULE, 0, 1536, FRA_SRC, ip, (unsigned)atoi(arg[1]));
    flush(fd, "delete rules");
}

int main(int argc, char **argv) {
    if (argc == 6 && !strcmp(argv[1], "add")) add(argv + 2);
    else if (argc == 4 && !strcmp(argv[1], "del")) del(argv + 2);
    else {
        fprintf(stderr, "usage: floor add NETNS HOSTIF ADDRESS TABLE | floor del ADDRESS TABLE\n");
        return 2;
    }
    return 0;
}
