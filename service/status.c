#include "service/status.h"

#include "base/error.h"
#include "base/util.h"

int status_of_class(int error_class)
{
    switch (error_class) {
    case CAIRN_OK:
        return 200;
    case CAIRN_NOT_FOUND:
        return 404;
    case CAIRN_BUSY:
        return 409;
    case CAIRN_INVALID:
        return 400;
    case CAIRN_CANCELLED:
        return 499;
    case CAIRN_TIMEOUT:
        return 504;
    case CAIRN_TRANSIENT:
        return 503;
    case CAIRN_NO_SPACE:
        return 507;
    case CAIRN_CORRUPT:
    case CAIRN_PERMANENT:
        return 502;
    default:
        return 500;
    }
}

const char *status_reason(int status)
{
    static const struct {
        int status;
        const char *reason;
    } known[] = {
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {206, "Partial Content"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {416, "Range Not Satisfiable"},
        {417, "Expectation Failed"},
        {431, "Request Header Fields Too Large"},
        {499, "Client Closed Request"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
        {507, "Insufficient Storage"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (known[i].status == status)
            return known[i].reason;
    return "Status";
}

int status_class(int status)
{
    switch (status) {
    case 404:
        return CAIRN_NOT_FOUND;
    case 408:
        return CAIRN_TIMEOUT;
    case 503:
        return CAIRN_TRANSIENT;
    case 500:
        return CAIRN_INTERNAL;
    default:
        return CAIRN_INVALID;
    }
}
