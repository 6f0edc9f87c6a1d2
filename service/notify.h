/* The notification protocol of systemd (sd_notify(3)): datagrams to the socket that NOTIFY_SOCKET
 * names. Without one, nothing happens. */
#ifndef CAIRN_SERVICE_NOTIFY_H
#define CAIRN_SERVICE_NOTIFY_H

#include <stdint.h>

/* text: lines such as "READY=1". Never blocks; failures are logged once. */
void notify_send(const char *text);
/* RELOADING=1 with the stamp that Type=notify-reload wants. */
void notify_reloading(void);
/* How often the watchdog wants to hear, halved; 0: not at all. */
int64_t notify_watchdog_ns(void);

#endif
