import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Map;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.NameCallback;
import javax.security.auth.callback.PasswordCallback;
import javax.security.sasl.Sasl;
import javax.security.sasl.SaslClient;
import org.apache.kafka.common.security.scram.internals.ScramFormatter;
import org.apache.kafka.common.security.scram.internals.ScramMechanism;
import org.apache.kafka.common.security.scram.internals.ScramMessages.ClientFinalMessage;
import org.apache.kafka.common.security.scram.internals.ScramMessages.ClientFirstMessage;
import org.apache.kafka.common.security.scram.internals.ScramMessages.ServerFirstMessage;

/**
 * The messages of PLAIN and SCRAM by the classes that Kafka's Java clients use.
 *
 * Each line of the input has the mechanism, the user, the password, the client's nonce, the first
 * message of the server, and whether a delegation token is used. Texts are hexadecimal, and parts
 * are separated by commas. The answer is a line with the messages of the client and, for SCRAM, the
 * signature that the client expects of the server.
 */
public final class SaslOracle {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split(",", -1);
            System.out.println(parts[0].equals("PLAIN") ? plain(parts) : scram(parts));
        }
    }

    private static String plain(String[] parts) throws Exception {
        SaslClient client = Sasl.createSaslClient(
            new String[] {"PLAIN"}, null, "kafka", "localhost", Map.of(), callbacks -> {
                for (Callback callback : callbacks) {
                    if (callback instanceof NameCallback name) {
                        name.setName(text(parts[1]));
                    } else if (callback instanceof PasswordCallback password) {
                        password.setPassword(text(parts[2]).toCharArray());
                    }
                }
            });
        return HEX.formatHex(client.evaluateChallenge(new byte[0]));
    }

    private static String scram(String[] parts) throws Exception {
        var formatter = new ScramFormatter(ScramMechanism.forMechanismName(parts[0]));
        Map<String, String> extensions =
            parts[5].equals("true") ? Map.of("tokenauth", "true") : Map.of();
        var first = new ClientFirstMessage(
            ScramFormatter.saslName(text(parts[1])), text(parts[3]), extensions);
        var challenge = new ServerFirstMessage(HEX.parseHex(parts[4]));
        byte[] salted = formatter.saltedPassword(
            text(parts[2]), challenge.salt(), challenge.iterations());
        var last = new ClientFinalMessage(ScramFormatter.toBytes("n,,"), challenge.nonce());
        last.proof(formatter.clientProof(salted, first, challenge, last));
        byte[] signature = formatter.serverSignature(
            formatter.serverKey(salted), first, challenge, last);
        return HEX.formatHex(first.toBytes()) + "," + HEX.formatHex(last.toBytes()) + ","
            + HEX.formatHex(signature);
    }

    private static String text(String hex) {
        return new String(HEX.parseHex(hex), StandardCharsets.UTF_8);
    }
}
