"""What is wrong with the published protocol, the most harmful first."""

FAULTS = (
    "The state contains the action: the ring of viewed videos is written before the state is taken, so that the row's "
    "own video, the thing to be predicted, is in it.",
    "The behaviour model is fitted on the test rows that it then judges. With the action in the state its best guess "
    "is near the logged one, so weights rarely exceed 1, the cap of 10 hardly binds, and the estimate is an average "
    "of rewards of videos whose popularity is like the policy's.",
    "The action is a popularity rank as a real number, the policy deterministic; both it and the behaviour are judged "
    "as Gaussians of width 25 that nobody plays. Naming the videos otherwise would change every value.",
    "Rare signals rest on a handful of events, and no interval is given.",
    "WatchTime is cut to whole units of ten seconds: shorter views count as nothing.",
    "The checkpoint is selected on the test rows, by their WatchTime.",
    "Arrays of shape [B] meet [B, 1]: episodes never end in the critic's target, which is multiplied by the batch's "
    "share of ends instead, and the supervised term pulls every state to the batch's mean action, not to its own.",
    "Only a part of the log is read, in the order of the file: a user's history has holes.",
    "Features of videos are averages over the month, test period and outcome included.",
    "Tables of users and videos are looked up by position, as if ids were dense and sorted.",
    "Six numbers of every video are in every state alike: 900 of 1044 inputs are constant.",
    "Train and test states are standardised apart, so that the policy sees shifted inputs; codes of categories are "
    "used as magnitudes; ranks and encodings are fitted on all rows; the split may cut a user in two.",
    "Dislike has the weight -0.1 beside 30 for WatchTime; PDPG drops it in its first step, and its weights, moved by "
    "1e-10, are constants in practice: 98 % WatchTime.",
    "PDPG's weights are clipped at 0 and divided by their sum, which has other fixed points than the min-norm problem.",
    "Stage one of TSCAC is one policy of the weighted sum, not one policy for each auxiliary signal; stage two is "
    "held to it by a coefficient of 10, since the option that was to lower it is misspelt and never read.",
)
"""Those of the public code, which are repeated here unless a table's `departures` say otherwise."""
