#include "service/uri.h"

#include <string.h>

static int digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

bool uri_decode(const char *text, size_t len, bool plus, char *out)
{
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (c == '%') {
            if (len - i < 3 || digit(text[i + 1]) < 0 || digit(text[i + 2]) < 0)
                return false;
            c = (char)(digit(text[i + 1]) * 16 + digit(text[i + 2]));
            i += 2;
        } else if (plus && c == '+') {
            c = ' ';
        }
        if (!c)
            return false;
        *out++ = c;
    }
    *out = 0;
    return true;
}

void uri_split(char *target, char **query)
{
    char *mark = strchr(target, '?');
    *query = mark ? mark + 1 : NULL;
    if (mark)
        *mark = 0;
}

int uri_next_parameter(char **at, char **name, char **value)
{
    while (*at && **at == '&')
        (*at)++;
    if (!*at || !**at)
        return 0;
    char *text = *at, *end = strchr(text, '&');
    *at = end ? end + 1 : NULL;
    if (end)
        *end = 0;
    char *eq = strchr(text, '='), *last = text + strlen(text);
    if (eq)
        *eq = 0;
    *name = text;
    *value = eq ? eq + 1 : last;
    return uri_decode(*name, strlen(*name), true, *name) &&
                   uri_decode(*value, strlen(*value), true, *value)
               ? 1
               : -1;
}
