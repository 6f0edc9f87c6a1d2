# Medians, ratios and goals of a raw.tsv that bench.sh wrote, as Markdown: awk -f report.awk raw.tsv
BEGIN {
    FS = "\t"
    n_peers = split("restic borg casync", peers, " ")
    n_tools = split("cairn cairn-none restic borg casync cp", tools, " ")
}

/^#/ {
    print "- " substr($0, 3)
    next
}
$1 == "run" { next }
{
    key = $2 SUBSEP $3
    n = ++count[key]
    wall[key, n] = $4
    cpu[key, n] = $5 + $6
    rss[key, n] = $7
    if ($7 > peak[$2])
        peak[$2] = $7
    if ($8 != "-") {
        size[key, n] = $8
        disk[key, n] = $9
    }
    if (!seen[$3]++)
        found[++n_found] = $3
}

function median(values, key,    n, i, j, v, sorted) {
    n = count[key]
    for (i = 1; i <= n; i++) {
        v = values[key, i] + 0
        for (j = i - 1; j >= 1 && sorted[j] > v; j--)
            sorted[j + 1] = sorted[j]
        sorted[j + 1] = v
    }
    return n % 2 ? sorted[(n + 1) / 2] : (sorted[n / 2] + sorted[n / 2 + 1]) / 2
}

# The quickest of the peers at a step; 0 where none was measured.
function fastest(step,    i, best, w) {
    best = 0
    for (i = 1; i <= n_peers; i++)
        if (count[peers[i], step]) {
            w = median(wall, peers[i] SUBSEP step)
            if (!best || w < best)
                best = w
        }
    return best
}

function time_table(    s, t, step, key, w, best, line) {
    print ""
    print "| step | tool | wall s | min..max | CPU s | peak MiB | to the fastest peer | to cp |"
    print "|---|---|---:|---:|---:|---:|---:|---:|"
    for (s = 1; s <= n_steps; s++) {
        step = steps[s]
        if (step !~ /^(store-|restore)/)
            continue
        best = fastest(step)
        for (t = 1; t <= n_tools; t++) {
            key = tools[t] SUBSEP step
            if (!count[key])
                continue
            w = median(wall, key)
            line = sprintf("| %s | %s | %.3f | %.3f..%.3f | %.2f | %.0f |", step, tools[t], w,
                           low(wall, key), high(wall, key), median(cpu, key),
                           high(rss, key) / 1024)
            line = line (best && tools[t] != "cp" ? sprintf(" %.2f |", w / best) : " |")
            line = line (step ~ /^restore/ && count["cp", step] ? \
                sprintf(" %.2f |", w / median(wall, "cp" SUBSEP step)) : " |")
            print line
        }
    }
}

function low(values, key,    i, v) {
    v = values[key, 1] + 0
    for (i = 2; i <= count[key]; i++)
        if (values[key, i] + 0 < v)
            v = values[key, i] + 0
    return v
}
function high(values, key,    i, v) {
    v = values[key, 1] + 0
    for (i = 2; i <= count[key]; i++)
        if (values[key, i] + 0 > v)
            v = values[key, i] + 0
    return v
}

function size_table(    s, t, line, step, key, before, now, any) {
    print ""
    print "| repository, MB | tool | size | on disk | growth |"
    print "|---|---|---:|---:|---:|"
    for (t = 1; t <= n_tools; t++) {
        before = 0
        for (s = 1; s <= n_steps; s++) {
            step = steps[s]
            key = tools[t] SUBSEP step
            if (step !~ /^store-/ || !count[key])
                continue
            now = median(size, key)
            printf "| after %s | %s | %.1f | %.1f | %.2f |\n", substr(step, 7), tools[t],
                now / 1e6, median(disk, key) / 1e6, (now - before) / 1e6
            before = now
        }
    }
}

# The largest growth of the repository of tool by one fork; "" when none was measured.
function worst_growth(tool,    s, key, before, now, worst) {
    worst = before = ""
    for (s = 1; s <= n_steps; s++) {
        key = tool SUBSEP steps[s]
        if (steps[s] !~ /^store-/ || !count[key])
            continue
        now = median(size, key)
        if (before != "" && (worst == "" || now - before > worst))
            worst = now - before
        before = now
    }
    return worst
}

# The largest ratio of cairn to the fastest peer over the forks; "" when none was measured.
function worst_fork(    s, step, best, worst, r) {
    worst = ""
    for (s = 1; s <= n_steps; s++) {
        step = steps[s]
        if (step !~ /^store-/ || step == "store-ck0" || !count["cairn", step])
            continue
        best = fastest(step)
        if (!best)
            continue
        r = median(wall, "cairn" SUBSEP step) / best
        if (worst == "" || r > worst)
            worst = r
    }
    return worst
}

function ratio(tool, step, to) {
    if (!count[tool, step] || !to)
        return ""
    return median(wall, tool SUBSEP step) / to
}

function goal(name, want, got, unit, at_least,    ok) {
    if (got == "")
        printf "| %s | %s %s%s | | not measured |\n", name, at_least ? "at least" : "at most", want,
            unit
    else {
        ok = at_least ? got + 0 >= want + 0 : got + 0 <= want + 0
        printf "| %s | %s %s%s | %.3f%s | %s |\n", name, at_least ? "at least" : "at most", want,
            unit, got, unit, ok ? "PASS" : "MISS"
    }
}

function goals(    cp, restic, top, xfs) {
    cp = count["cp", "restore"] ? median(wall, "cp" SUBSEP "restore") : 0
    restic = count["restic", "store-ck0"] ? median(size, "restic" SUBSEP "store-ck0") : 0
    top = peak["cairn"] > peak["cairn-none"] ? peak["cairn"] : peak["cairn-none"]
    xfs = count["cp", "xfs-copy"] && count["cairn-none", "xfs-fetch"] ? \
        median(wall, "cp" SUBSEP "xfs-copy") / median(wall, "cairn-none" SUBSEP "xfs-fetch") : ""
    print ""
    print "| goal | wanted | measured | |"
    print "|---|---:|---:|---|"
    goal("cold store, to the fastest peer", "0.250", ratio("cairn", "store-ck0", fastest("store-ck0")))
    goal("cold store without compression, to the fastest peer", "0.100",
         ratio("cairn-none", "store-ck0", fastest("store-ck0")))
    goal("worst fork with its parent, to the fastest peer", "0.100", worst_fork())
    goal("restore, to cp --sparse=always", "1.000", ratio("cairn", "restore", cp))
    goal("repository after ck0, to restic's", "1.200", restic && count["cairn", "store-ck0"] ? \
         median(size, "cairn" SUBSEP "store-ck0") / restic : "")
    goal("worst growth by a fork", "1.000",
         worst_growth("cairn") == "" ? "" : worst_growth("cairn") / 1e6, " MB")
    goal("peak memory, all steps", "256.000", top ? top / 1024 : "", " MiB")
    goal("fork of a record, whole process", "5.000", count["cairn", "fork-record"] ? \
         median(wall, "cairn" SUBSEP "fork-record") * 1000 : "", " ms")
    goal("fetch on XFS by reflink, times faster than cp --sparse=always", "5.000", xfs, "", 1)
}

function others(    s, t, step, key, head) {
    for (s = 1; s <= n_steps; s++) {
        step = steps[s]
        if (step ~ /^(store-|restore)/)
            continue
        for (key in count) {
            split(key, t, SUBSEP)
            if (t[2] != step)
                continue
            if (!head++) {
                print ""
                print "| other | tool | median ms | min..max | peak MiB | times |"
                print "|---|---|---:|---:|---:|---:|"
            }
            printf "| %s | %s | %.1f | %.1f..%.1f | %.0f | %d |\n", step, t[1],
                median(wall, key) * 1000, low(wall, key) * 1000, high(wall, key) * 1000,
                high(rss, key) / 1024, count[key]
        }
    }
}

# Steps in the order of a checkpoint's life, whichever tool came first.
function order(    pass, i, wanted) {
    for (pass = 1; pass <= 3; pass++)
        for (i = 1; i <= n_found; i++) {
            wanted = found[i] ~ /^store-/ ? 1 : found[i] ~ /^restore/ ? 2 : 3
            if (wanted == pass)
                steps[++n_steps] = found[i]
        }
}

END {
    order()
    time_table()
    size_table()
    others()
    goals()
}
