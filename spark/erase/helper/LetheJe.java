// LetheJe: what only Berkeley DB JE itself can do for an erasure, done with the JE that an environment belongs to.
//
//   java -cp JARS LetheJe.java ENVIRONMENT [truncate|checkpoint|show|verify] [--keep N]
//
// JARS: the jar of JE, and those of the application where its databases have comparators. No build is needed.
//
//   truncate    (default) make a checkpoint, then truncate the head of the VLSN index of a replicated environment
//               down to --keep VLSNs (default: je.rep.minVLSNIndexSize), so that older files can be erased
//   checkpoint  begin a new file and make a checkpoint, so that nothing at the end of the log is needed for recovery
//   show        say what truncate would do; nothing is written
//   verify      read the whole log and all trees with JE's own checks; nothing is written
//
// No other process may have the environment open to write. The node does not join its group: nothing is sent or
// received. JE's cleaner, eraser and other threads of its own stay off.
//
// Exit codes: 0 done; 1 JE failed, or verify found errors; 3 nothing to do; 64 usage; 75 the environment is in use,
// try again; 78 configuration: no JE on the class path, no environment, or je.properties says otherwise.

import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

public class LetheJe {
    static final int OK = 0;
    static final int FAILED = 1;
    static final int NOTHING = 3;
    static final int USAGE = 64;
    static final int IN_USE = 75;
    static final int CONFIGURATION = 78;

    static final String KEEP = "je.rep.minVLSNIndexSize";
    static final long KEEP_DEFAULT = 1000;
    static final List<String> ACTS = List.of("truncate", "checkpoint", "show", "verify");
    static final String INDEX = "_jeVlsnMapDb";
    static final String[] QUIET = {
        "je.env.runCleaner", "je.env.runCheckpointer", "je.env.runINCompressor", "je.env.runVerifier",
        "je.env.runEraser", "je.env.runExtinctRecordScanner", "je.env.runBackup", "je.stats.collect",
    };

    /** Ends the program with a message and an exit code. */
    static class Stop extends RuntimeException {
        final int code;

        Stop(int code, String message) {
            super(message);
            this.code = code;
        }
    }

    /** What the VLSN index covers. */
    record Range(long first, long last, long lastSync) { }

    /** Where the index can be cut: behind the last VLSN of a file. */
    record Cut(long file, long vlsn) { }

    public static void main(String[] args) {
        int code;
        try {
            code = run(args);
        } catch (Stop stop) {
            System.err.println(stop.getMessage());
            code = stop.code;
        } catch (Throwable failure) {
            System.err.println("JE failed: " + failure);
            System.err.println("Nothing more was done. Open the environment with the application, which recovers it;"
                + " then try again.");
            code = FAILED;
        }
        System.out.flush();
        System.exit(code);
    }

    static int run(String[] args) throws Exception {
        List<String> words = new ArrayList<>();
        long keep = -1;
        for (int at = 0; at < args.length; at++) {
            if (args[at].equals("--keep")) {
                keep = number(at + 1 < args.length ? args[++at] : "");
            } else if (args[at].startsWith("-")) {
                throw usage("unknown option " + args[at]);
            } else {
                words.add(args[at]);
            }
        }
        if (words.isEmpty() || words.size() > 2) {
            throw usage("give one ENVIRONMENT");
        }
        String act = words.size() == 2 ? words.get(1) : "truncate";
        if (!ACTS.contains(act)) {
            throw usage("unknown act " + act);
        }
        if (keep >= 0 && !act.equals("truncate") && !act.equals("show")) {
            throw usage("--keep belongs to truncate and show");
        }
        LetheJe helper = new LetheJe(new File(words.get(0)).getAbsoluteFile(), keep);
        return switch (act) {
            case "truncate" -> helper.truncate();
            case "checkpoint" -> helper.checkpoint();
            case "show" -> helper.show();
            default -> helper.verify();
        };
    }

    static long number(String text) {
        try {
            long found = Long.parseLong(text);
            if (found >= 1 && found <= Integer.MAX_VALUE) {
                return found;
            }
        } catch (NumberFormatException error) {
            // told below
        }
        throw usage("--keep takes a number from 1 on, not '" + text + "'");
    }

    static Stop usage(String problem) {
        return new Stop(USAGE, problem + "\nusage: java -cp JARS LetheJe.java ENVIRONMENT"
            + " [truncate|checkpoint|show|verify] [--keep N]");
    }

    private final File home;
    private final long keep;
    private final Log log;

    LetheJe(File home, long keep) throws IOException {
        this.home = home;
        this.keep = keep;
        try {
            Class.forName("com.sleepycat.je.Environment");
        } catch (ClassNotFoundException error) {
            throw new Stop(CONFIGURATION, "There is no Berkeley DB JE on the class path. Name the jar that the"
                + " application uses: java -cp /path/to/je.jar LetheJe.java ...");
        }
        this.log = new Log(home);
    }

    // The four acts

    int show() throws Exception {
        if (!log.isReplicated()) {
            System.out.println("The environment is not replicated: it has no VLSN index. The act is: checkpoint");
            return NOTHING;
        }
        Range range = storedRange();
        tell("The VLSN index covers", range);
        Cut cut = log.cut(range, limitOf(range, keepWanted()));
        if (cut == null) {
            System.out.println("truncate would do nothing: " + tooSmall(range));
            return NOTHING;
        }
        System.out.println("truncate would free everything up to VLSN " + cut.vlsn + ", the last one of "
            + Log.name(cut.file) + ".");
        return OK;
    }

    int truncate() throws Exception {
        if (!log.isReplicated()) {
            System.out.println("Nothing done: the environment is not replicated, it has no VLSN index."
                + " For the end of its log use: checkpoint");
            return NOTHING;
        }
        refuseOtherKeep();
        Range stored = storedRange();
        if (log.cut(stored, limitOf(stored, keepWanted())) == null) {
            System.out.println("Nothing done: " + tooSmall(stored));
            return NOTHING;
        }
        Object environment = open();
        boolean cutOff;
        try {
            // First a checkpoint in a new file: recovery needs no older one then, so each may be cut off.
            settle(environment);
            cutOff = cut(environment);
            if (cutOff) {
                checkpoint(environment);
            }
        } finally {
            call(environment, "close");
        }
        if (!cutOff) {
            System.out.println("The VLSN index is as it was; only a checkpoint was made.");
            return NOTHING;
        }
        System.out.println("A replica that still wants an older VLSN needs a network restore. Next: lethe erasure"
            + " plan STORE");
        return OK;
    }

    int checkpoint() throws Exception {
        Object environment = open();
        try {
            settle(environment);
        } finally {
            call(environment, "close");
        }
        System.out.println("Next: lethe erasure plan STORE");
        return OK;
    }

    int verify() throws Exception {
        Object environment = openToRead();
        try {
            Object summary = call(make("com.sleepycat.je.util.DbVerifyLog", environment), "verifyAll");
            boolean bad = hasErrors(summary);
            Object config = make("com.sleepycat.je.VerifyConfig");
            call(config, "setVerifyDataRecords", true);
            Object trees = call(environment, "verify", config);
            bad |= hasErrors(trees);
            System.out.println(bad ? "JE found errors:\n" + summary + "\n" + trees : "JE found no error.");
            return bad ? FAILED : OK;
        } finally {
            call(environment, "close");
        }
    }

    static boolean hasErrors(Object summary) throws Exception {
        if (summary == null) {
            return false; // an older JE throws instead
        }
        return summary instanceof Boolean good ? !good : (Boolean) call(summary, "hasErrors");
    }

    // Parts of the acts

    /** Begin a new file and make a checkpoint: recovery begins in that file then. */
    void settle(Object environment) throws Exception {
        call(internal(environment), "forceLogFileFlip");
        checkpoint(environment);
        long file = recoveryFile(internal(environment));
        System.out.println("Checkpoint made: recovery begins in " + Log.name(file) + ".");
    }

    static void checkpoint(Object environment) throws Exception {
        Object config = make("com.sleepycat.je.CheckpointConfig");
        call(config, "setForce", true);
        call(environment, "checkpoint", config);
    }

    static long recoveryFile(Object internal) throws Exception {
        return (Long) call(call(internal, "getCheckpointer"), "getLastCheckpointFirstActiveLsn") >>> 32;
    }

    /** Truncate the index; false where JE will not. */
    boolean cut(Object environment) throws Exception {
        Object internal = internal(environment);
        Object index = call(internal, "getVLSNIndex");
        Range before = rangeOf(call(index, "getRange"));
        tell("The VLSN index covers", before);
        Cut cut = new Log(home).cut(before, limitOf(before, keepWanted()));
        if (cut == null || cut.file >= recoveryFile(internal)) {
            System.out.println("Not truncated: " + tooSmall(before));
            return false;
        }
        if (!(Boolean) callWithVlsn(internal, "tryTruncateVlsnHead", cut.vlsn, cut.file)) {
            System.out.println("JE refused: a file up to " + Log.name(cut.file) + " is protected, or less than "
                + keepWanted() + " VLSNs would stay.");
            return false;
        }
        Range after = rangeOf(call(index, "getRange"));
        tell("Truncated. The VLSN index covers now", after);
        System.out.println("Freed for an erasure: " + Log.name(cut.file) + " and older files.");
        return true;
    }

    static long limitOf(Range range, long keep) {
        return Math.min(range.lastSync, range.last - keep);
    }

    String tooSmall(Range range) {
        String why = range.last - range.first < keepWanted() ? "the VLSN index is small already"
            : "no file that the VLSN index could do without ends before VLSN " + limitOf(range, keepWanted());
        return why + "; " + keepWanted() + " VLSNs must stay.";
    }

    static void tell(String what, Range range) {
        System.out.println(what + " VLSN " + range.first + " to " + range.last + " (" + (range.last - range.first + 1)
            + "), last point of synchronisation " + range.lastSync + ".");
    }

    long keepWanted() {
        return keep >= 0 ? keep : keepNamed(KEEP_DEFAULT);
    }

    long keepNamed(long otherwise) {
        String named = log.properties.getProperty(KEEP);
        try {
            return named == null ? otherwise : Long.parseLong(named.trim());
        } catch (NumberFormatException error) {
            throw new Stop(CONFIGURATION, KEEP + "=" + named + " in je.properties is no number. Mend it.");
        }
    }

    /** What je.properties says counts for JE, whatever it is given by a program. */
    void refuseOtherKeep() {
        long named = keepNamed(-1);
        if (keep >= 0 && keep < named) {
            throw new Stop(CONFIGURATION, "Nothing done: je.properties says " + KEEP + "=" + named
                + ", so JE keeps that many. Give --keep " + named + " or more, or change je.properties.");
        }
    }

    // Environments

    Object openToRead() throws Exception {
        Object config = config();
        call(config, "setReadOnly", true);
        return opened("com.sleepycat.je.Environment", home, config);
    }

    Object open() throws Exception {
        Object config = config();
        if (!log.isReplicated()) {
            return opened("com.sleepycat.je.Environment", home, config);
        }
        // A handle that does not join its group, as JE's own tools for one node open it.
        Object replication = make("com.sleepycat.je.rep.ReplicationConfig", "lethe", "lethe", "localhost:5001");
        call(replication, "setConfigParam", KEEP, Long.toString(keepWanted()));
        Class<?> maker = Class.forName("com.sleepycat.je.rep.RepInternal");
        return guarded(() -> invoke(method(maker, "createDetachedEnv", home, replication, config), null, home,
            replication, config));
    }

    Object config() throws Exception {
        Object config = make("com.sleepycat.je.EnvironmentConfig");
        call(config, "setTransactional", true);
        call(config, "setAllowCreate", false);
        for (String name : QUIET) {
            try {
                call(config, "setConfigParam", name, "false");
            } catch (IllegalArgumentException unknown) {
                continue; // this JE has no such thread
            }
        }
        call(config, "setConfigParam", "com.sleepycat.je.util.FileHandler.level", "OFF");
        return config;
    }

    Object opened(String type, Object... arguments) throws Exception {
        return guarded(() -> make(type, arguments));
    }

    interface Opening {
        Object open() throws Exception;
    }

    Object guarded(Opening opening) throws Exception {
        try {
            return opening.open();
        } catch (RuntimeException error) {
            String name = error.getClass().getSimpleName();
            if (name.equals("EnvironmentLockedException")) {
                throw new Stop(IN_USE, "Nothing done: another process has " + home + " open. Close the application,"
                    + " or let the erasure end its round; then try again.");
            }
            if (name.equals("EnvironmentNotFoundException") || name.equals("VersionMismatchException")) {
                throw new Stop(CONFIGURATION, "Nothing done: " + error.getMessage());
            }
            throw error;
        }
    }

    static Object internal(Object environment) throws Exception {
        Class<?> type = Class.forName("com.sleepycat.je.DbInternal");
        return invoke(method(type, "getNonNullEnvImpl", environment), null, environment);
    }

    /** The range as the last checkpoint or flush left it, raised to what the log shows. */
    Range storedRange() throws Exception {
        Object environment = openToRead();
        try {
            Object internal = internal(environment);
            Class<?> lockers = Class.forName("com.sleepycat.je.txn.BasicLocker");
            Object locker = invoke(method(lockers, "createBasicLocker", internal), null, internal);
            Object trees = call(internal, "getDbTree");
            Object index = call(trees, "getDb", locker, INDEX, null, false);
            call(locker, "operationEnd", true);
            if (index == null) {
                throw new Stop(NOTHING, "Nothing done: there is no VLSN index yet.");
            }
            try {
                return readRange(internal, index);
            } finally {
                call(trees, "releaseDb", index);
            }
        } finally {
            call(environment, "close");
        }
    }

    Range readRange(Object internal, Object index) throws Exception {
        Class<?> lockers = Class.forName("com.sleepycat.je.txn.BasicLocker");
        Object locker = invoke(method(lockers, "createBasicLocker", internal), null, internal);
        Object defaults = Class.forName("com.sleepycat.je.CursorConfig").getField("DEFAULT").get(null);
        Class<?> makers = Class.forName("com.sleepycat.je.DbInternal");
        Object cursor = invoke(method(makers, "makeCursor", index, locker, defaults), null, index, locker, defaults);
        try {
            Object key = make("com.sleepycat.je.DatabaseEntry");
            Object data = make("com.sleepycat.je.DatabaseEntry");
            call(cursor, "getFirst", key, data, null);
            byte[] raw = (byte[]) call(data, "getData");
            if (raw == null) {
                throw new Stop(NOTHING, "Nothing done: the VLSN index is empty.");
            }
            Class<?> ranges = Class.forName("com.sleepycat.je.rep.vlsn.VLSNRange");
            Range stored = rangeOf(invoke(method(ranges, "readFromDatabase", data), null, data));
            long last = Math.max(stored.last, log.lastVlsn());
            return new Range(stored.first, last, Math.max(stored.lastSync, log.lastEndVlsn()));
        } finally {
            call(cursor, "close");
            call(locker, "operationEnd", true);
        }
    }

    static Range rangeOf(Object range) throws Exception {
        return new Range(plain(call(range, "getFirst")), plain(call(range, "getLast")),
            plain(call(range, "getLastSync")));
    }

    /** A VLSN is a long in newer versions and an object in older ones. */
    static long plain(Object vlsn) throws Exception {
        return vlsn instanceof Long number ? number : (Long) call(vlsn, "getSequence");
    }

    static Object callWithVlsn(Object target, String name, long vlsn, long file) throws Exception {
        try {
            return call(target, name, vlsn, file);
        } catch (NoSuchMethodException older) {
            return call(target, name, make("com.sleepycat.je.utilint.VLSN", vlsn), file);
        }
    }

    // JE by name: one source for whichever version is on the class path

    static Object make(String type, Object... arguments) throws Exception {
        for (Constructor<?> each : Class.forName(type).getDeclaredConstructors()) {
            if (takes(each.getParameterTypes(), arguments) && each.trySetAccessible()) {
                try {
                    return each.newInstance(arguments);
                } catch (InvocationTargetException error) {
                    throw cause(error);
                }
            }
        }
        throw new NoSuchMethodException("this JE has no " + type + Arrays.toString(arguments));
    }

    static Object call(Object target, String name, Object... arguments) throws Exception {
        return invoke(method(target.getClass(), name, arguments), target, arguments);
    }

    static Object invoke(Method method, Object target, Object... arguments) throws Exception {
        try {
            return method.invoke(target, arguments);
        } catch (InvocationTargetException error) {
            throw cause(error);
        }
    }

    static Exception cause(InvocationTargetException error) {
        if (error.getCause() instanceof Error fatal) {
            throw fatal;
        }
        return (Exception) error.getCause();
    }

    static Method method(Class<?> type, String name, Object... arguments) throws NoSuchMethodException {
        for (Class<?> at = type; at != null; at = at.getSuperclass()) {
            for (Method each : at.getDeclaredMethods()) {
                if (each.getName().equals(name) && !each.isBridge() && takes(each.getParameterTypes(), arguments)
                    && each.trySetAccessible()) {
                    return each;
                }
            }
        }
        throw new NoSuchMethodException("this JE has no " + type.getName() + "." + name);
    }

    static boolean takes(Class<?>[] wanted, Object[] given) {
        if (wanted.length != given.length) {
            return false;
        }
        for (int at = 0; at < wanted.length; at++) {
            Class<?> type = wanted[at] == boolean.class ? Boolean.class
                : wanted[at] == long.class ? Long.class : wanted[at] == int.class ? Integer.class : wanted[at];
            if (given[at] == null ? wanted[at].isPrimitive() : !type.isInstance(given[at])) {
                return false;
            }
        }
        return true;
    }

    /** The files of the log and the VLSNs in the headers of their entries; nothing else of them is looked at. */
    static class Log {
        static final int COMMIT = 17;
        static final int ABORT = 18;
        static final int MATCHPOINT = 30;
        static final int REPLICATED = 0x20;
        static final int INVISIBLE = 0x10;
        static final int WITH_VLSN = 0x28;

        final java.util.Properties properties = new java.util.Properties();
        /** File -> its last VLSN; without files that have none. */
        final Map<Long, Long> lastOf = new TreeMap<>();
        private long lastEnd = -1;
        private boolean replicated;

        Log(File home) throws IOException {
            List<File> files = filesOf(home);
            if (files.isEmpty()) {
                throw new Stop(CONFIGURATION, "There is no log file (*.jdb) in " + home
                    + ". Give the directory that JE was opened with.");
            }
            File named = new File(home, "je.properties");
            if (named.isFile()) {
                try (java.io.InputStream in = new java.io.FileInputStream(named)) {
                    properties.load(in);
                }
            }
            for (File each : files) {
                read(each);
            }
        }

        /** In the directory itself, or in data001, data002 and so on where je.log.nDataDirectories is set. */
        static List<File> filesOf(File home) {
            List<File> found = new ArrayList<>();
            List<File> places = new ArrayList<>(List.of(home));
            File[] below = home.listFiles((dir, name) -> name.matches("data[0-9]{3}"));
            places.addAll(below == null ? List.of() : Arrays.asList(below));
            for (File place : places) {
                File[] files = place.listFiles((dir, name) -> name.matches("[0-9a-f]{8}\\.jdb"));
                found.addAll(files == null ? List.of() : Arrays.asList(files));
            }
            found.sort((one, other) -> one.getName().compareTo(other.getName()));
            return found;
        }

        static String name(long file) {
            return String.format("%08x.jdb", file);
        }

        boolean isReplicated() {
            return replicated;
        }

        long lastVlsn() {
            return lastOf.values().stream().mapToLong(Long::longValue).max().orElse(-1);
        }

        /** Of the last end of a transaction, or point of synchronisation. */
        long lastEndVlsn() {
            return lastEnd;
        }

        /** The newest file whose last VLSN lies before a limit, and in the index. */
        Cut cut(Range range, long limit) {
            Cut found = null;
            for (Map.Entry<Long, Long> each : lastOf.entrySet()) {
                if (each.getValue() >= range.first && each.getValue() < limit) {
                    found = new Cut(each.getKey(), each.getValue());
                }
            }
            return found;
        }

        private void read(File file) throws IOException {
            long number = Long.parseLong(file.getName().substring(0, 8), 16);
            try (RandomAccessFile data = new RandomAccessFile(file, "r")) {
                long size = data.length();
                byte[] block = new byte[1 << 20];
                long blockAt = 0;
                int filled = 0;
                for (long at = 0; at + 14 <= size;) {
                    if (at < blockAt || at + 22 > blockAt + filled) {
                        data.seek(at);
                        blockAt = at;
                        filled = 0;
                        for (int more; filled < block.length
                            && (more = data.read(block, filled, block.length - filled)) > 0;) {
                            filled += more;
                        }
                    }
                    if (at + 14 > blockAt + filled) {
                        return;
                    }
                    ByteBuffer entry = ByteBuffer.wrap(block).order(ByteOrder.LITTLE_ENDIAN);
                    int base = (int) (at - blockAt);
                    int type = block[base + 4] & 0xff;
                    int flags = type == 25 ? 0 : block[base + 5];
                    int item = entry.getInt(base + 10);
                    boolean hasVlsn = (flags & WITH_VLSN) != 0;
                    long end = at + (hasVlsn ? 22 : 14) + item;
                    if (item < 0 || type == 0 || end > size) {
                        return; // what a crash left of an entry
                    }
                    if (hasVlsn) {
                        note(number, type, flags, entry.getLong(base + 14));
                    }
                    at = end;
                }
            }
        }

        private void note(long file, int type, int flags, long vlsn) {
            replicated = true;
            if ((flags & REPLICATED) == 0 || (flags & INVISIBLE) != 0) {
                return; // moved here by the cleaner, or rolled back
            }
            lastOf.merge(file, vlsn, Math::max);
            if (type == COMMIT || type == ABORT || type == MATCHPOINT) {
                lastEnd = Math.max(lastEnd, vlsn);
            }
        }
    }
}
