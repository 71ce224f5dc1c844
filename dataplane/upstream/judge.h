/* What requests and probes find out about endpoints, kept until control asks. Private to
 * upstream/. */
#ifndef MILLRACE_DATAPLANE_UPSTREAM_JUDGE_H
#define MILLRACE_DATAPLANE_UPSTREAM_JUDGE_H

#include "dataplane/upstream/upstream.h"

/* Tallies come and go with the upstream's outlier settings. 0 or -ENOMEM: without one then. */
int judge_prepare(struct endpoint *ep, bool wanted);
void judge_discard(struct endpoint *ep);

/* Something that control should hear of at once. */
void judge_report(struct endpoint *ep);

#endif
