/* rados/load.h: whether librados can be loaded. */
#ifndef RADOS_LOAD_H
#define RADOS_LOAD_H

/* NULL: it is there; else why it is not. Static. */
const char *rv_lacking(void);

#endif
