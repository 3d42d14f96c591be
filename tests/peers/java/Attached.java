import java.util.Arrays;

/**
 * Runs the main method of another class in a JVM that ends when whoever started it is gone.
 *
 * <p>Standard input is a pipe that the starting process holds open. Its end means that this process was killed without
 * a chance to stop us, and nobody else would.
 */
public final class Attached {
    public static void main(String[] arguments) throws Exception {
        Thread watch = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException error) {
                // A broken pipe is an end, too.
            }
            Runtime.getRuntime().halt(137);
        }, "starter-watch");
        watch.setDaemon(true);
        watch.start();
        Class.forName(arguments[0])
            .getMethod("main", String[].class)
            .invoke(null, (Object) Arrays.copyOfRange(arguments, 1, arguments.length));
    }
}
