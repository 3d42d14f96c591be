import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;

/**
 * Says what Kafka calls clients by their certificates: the subjects on standard input, in hex of DER, one a line, and the
 * names on standard output, in hex of UTF-8; an empty line if there is none.
 */
public final class SubjectNames {
    private SubjectNames() {}

    public static void main(String[] arguments) throws Exception {
        HexFormat hex = HexFormat.of();
        BufferedReader subjects = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = subjects.readLine(); line != null; line = subjects.readLine()) {
            String name;
            try {
                name = new X500Principal(hex.parseHex(line)).getName();
            } catch (IllegalArgumentException refused) {
                name = "";
            }
            System.out.println(hex.formatHex(name.getBytes(StandardCharsets.UTF_8)));
        }
    }
}
