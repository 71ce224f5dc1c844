#include "control/source.h"

void source_close(struct config_source *s)
{
    if (s)
        s->ops->close(s);
}
