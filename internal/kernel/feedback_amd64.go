package kernel

var avx512Feedback = feedbackForms{round: feedbackRoundAVX512, moments: laneMomentsAVX512}

var avx2Feedback = feedbackForms{round: feedbackRoundAVX2, moments: laneMomentsAVX2}
