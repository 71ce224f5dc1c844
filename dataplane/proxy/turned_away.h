/* How a connection ends before the protocol that it was to carry begins. */
#ifndef MILLRACE_DATAPLANE_PROXY_TURNED_AWAY_H
#define MILLRACE_DATAPLANE_PROXY_TURNED_AWAY_H

enum turned_away {
#define TURNED_AWAY(name, text) TURNED_AWAY_##name,
#include "dataplane/proxy/turned_away.def"
#undef TURNED_AWAY
    TURNED_AWAY_COUNT
};
const char *turned_away_name(enum turned_away why);

#endif
