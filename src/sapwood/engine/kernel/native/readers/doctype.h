/* Whether a message begins with a document type declaration, before anything else reads it. */
#ifndef SAPWOOD_DOCTYPE_H
#define SAPWOOD_DOCTYPE_H

#include "reader.h"

/* Whether comments, processing instructions and white space are followed by `<!D`, in UTF-16 or in an
   encoding that extends ASCII, which are the ones that expat reads. */
int begins_with_doctype(struct span message);

#endif
