import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntConsumer;

/**
 * Runs command-line tools one after another in one JVM, because starting one costs more than most of them take.
 *
 * <pre>
 * request, a line on standard input:   base64(main class) SP base64(argument) SP ...
 * answer on standard output:           exit-code SP stdout-length SP stderr-length LF stdout stderr
 * </pre>
 */
public final class ToolHost {
    /** What System.out or System.err stands for: Scala's Console keeps the first it meets for ever. */
    private static final class Switch extends OutputStream {
        private OutputStream target = OutputStream.nullOutputStream();

        synchronized void to(OutputStream next) {
            target = next;
        }

        @Override
        public synchronized void write(int value) throws IOException {
            target.write(value);
        }

        @Override
        public synchronized void write(byte[] bytes, int start, int length) throws IOException {
            target.write(bytes, start, length);
        }
    }

    public static void main(String[] unused) throws IOException, InterruptedException {
        PrintStream answers = System.out;
        Switch out = new Switch();
        Switch err = new Switch();
        PrintStream outStream = new PrintStream(out, false, StandardCharsets.UTF_8);
        PrintStream errStream = new PrintStream(err, false, StandardCharsets.UTF_8);
        System.setOut(outStream);
        System.setErr(errStream);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            ByteArrayOutputStream complained = new ByteArrayOutputStream();
            out.to(printed);
            err.to(complained);
            int code = run(words(line));
            outStream.flush();
            errStream.flush();
            out.to(OutputStream.nullOutputStream());
            err.to(OutputStream.nullOutputStream());
            String head = code + " " + printed.size() + " " + complained.size() + "\n";
            answers.write(head.getBytes(StandardCharsets.US_ASCII));
            printed.writeTo(answers);
            complained.writeTo(answers);
            answers.flush();
        }
    }

    private static List<String> words(String line) {
        List<String> words = new ArrayList<>();
        for (String word : line.split(" ", -1)) {
            words.add(new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8));
        }
        return words;
    }

    /**
     * Runs a tool in a thread of its own and gives its exit code.
     *
     * <p>Where the tool would end the JVM, its thread stands still for ever instead: nothing that a real exit prevents
     * may run, neither the tool's handlers nor its messages about what they caught.
     */
    private static int run(List<String> words) throws InterruptedException {
        LinkedBlockingQueue<Integer> end = new LinkedBlockingQueue<>();
        insteadOfExit(code -> {
            end.offer(code);
            while (true) {
                LockSupport.park();
            }
        });
        Thread tool = new Thread(() -> end.offer(call(words)), words.get(0));
        tool.setDaemon(true);
        tool.start();
        return end.take();
    }

    /** Tells Kafka's Exit, which is in another package since 4.4, what to do instead of it. */
    private static void insteadOfExit(IntConsumer leave) {
        try {
            Class<?> exit;
            try {
                exit = Class.forName("org.apache.kafka.common.utils.internals.Exit");
            } catch (ClassNotFoundException before) {
                exit = Class.forName("org.apache.kafka.common.utils.Exit");
            }
            Class<?> kind = Class.forName(exit.getName() + "$Procedure");
            Object procedure = Proxy.newProxyInstance(kind.getClassLoader(), new Class<?>[] {kind}, (self, method, given) -> {
                leave.accept((Integer) given[0]);
                return null;
            });
            exit.getMethod("setExitProcedure", kind).invoke(null, procedure);
            exit.getMethod("setHaltProcedure", kind).invoke(null, procedure);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    private static int call(List<String> words) {
        try {
            String[] arguments = words.subList(1, words.size()).toArray(new String[0]);
            Class.forName(words.get(0)).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException error) {
            // As a JVM does with what leaves its main method.
            System.err.print("Exception in thread \"main\" ");
            error.getCause().printStackTrace();
        } catch (ReflectiveOperationException error) {
            error.printStackTrace();
        }
        return 1;
    }
}
