/* Scripted packet tests in the manner of packetdrill: one endpoint of ours (net and tcp) on a
 * virtual clock; the script plays its peer and its application.
 *
 *   set rcv_buf 4096            options, before the first event (list: script_app.c)
 *   listen 8080
 *   +0    < S 0:0(0) win 65535 <mss 1460,sackOK>      the peer sends; +T: after the event before
 *   +0    > S. 0:0(0) ack 1 win * <mss 1460,...>      we must send just this, then
 *   +.010 < . 1:1(0) ack 1
 *   accept
 *   write 1000
 *   *     > P. 1:1001(1000) ack 1                     *: whenever (within 300 s)
 *   silence 1.0                                       nothing sent for that long
 *
 * Time: "+0.5" after the event before, "1.5" since the start, "+0.2~0.4" between, none: now. A
 * packet may come 1 ms off its time ("set tolerance 0.01"). Whatever we send must be expected, in
 * order, before the script goes on.
 *
 * Segments: FLAGS SEQ:END(LEN) [ack N] [win N] [urg N] [tos N] [<options>]. Flags of "SFRP.UEW",
 * "-" for none; PSH isn't compared. Numbers are relative to the ISNs (so a SYN is 0:0(0)); for what
 * we send also N..M and *; left out: not compared. SEQ may be "*" or "*(LEN)". Options: mss,
 * wscale, sackOK, "TS val N ecr N", "sack A:B C:D", nop, eol, "hex 0102"; "..." allows others. Our
 * TSval is relative to the first one; injected "ecr last" echoes the newest. Injected only: doff N,
 * badsum, cut N (bytes of the segment), other (bytes that differ from the stream's), sport N, dport
 * N, src ADDR, dst ADDR, linkbroadcast. "<<" instead of "<": more of the same burst follows.
 *
 *   < tcp HEX | ip HEX | frame HEX      raw bytes after the headers that are left out
 *   < icmp unreachable frag_needed mtu 1200 [1:1(0)]   about our segment at that place
 *   > icmp unreachable port
 *   arp off | > arp request | < arp reply  (else the kit answers for the peer)
 *
 * Application: listen PORT, unlisten, accept, connect [PORT], write N, read N, shutdown, close,
 * abort; write and read may end in "= N" or "= EAGAIN" or an error's name. "expect": error NAME,
 * connected, connecting, read NAME|N, eof, avail N, space N, drop NAME N, stat NAME N (both since
 * the last time that it was asked), conns N, half_open N, time_wait N, held N. Flows: conn N
 * (another peer port; 0 at the start), peer_isn N, flow new (forget ISNs and local port). Memory:
 * mbufs leave N, mbufs restore. Clock: ignore T passes time and forgets what is sent. Loops: "for i
 * 0 9" … "end"; {i*10+1} in any line. "# comment".
 */
#ifndef MILLRACE_TESTS_KIT_SCRIPT_H
#define MILLRACE_TESTS_KIT_SCRIPT_H

#include <stdbool.h>
#include <stdio.h>

/* Runs one script; failing, it writes why, where and the transcript to `report`. */
bool script_run(const char *path, FILE *report);

#endif
